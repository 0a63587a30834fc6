"""What one agent does: its zones, the copies of each, their roles, leases and transfers."""
