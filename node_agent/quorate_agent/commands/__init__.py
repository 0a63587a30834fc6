"""The way of a zone's commands: executed, joined, forwarded, redirected or parked."""
