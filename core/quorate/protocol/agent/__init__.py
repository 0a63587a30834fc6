"""One agent: its zones, the copies of each, their roles, leases and transfers."""
