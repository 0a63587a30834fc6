"""What becomes of a zone's commands: executed, joined, forwarded, redirected, parked."""
