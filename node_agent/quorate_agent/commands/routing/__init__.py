"""Commands that cannot just be executed here: redirected, forwarded, parked, spread over parts."""
