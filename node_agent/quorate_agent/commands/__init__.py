"""What happens to a zone's commands: executed, joined, forwarded, redirected or parked."""
