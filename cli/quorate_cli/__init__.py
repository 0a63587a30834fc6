"""The `quorate` command: a cluster on this machine, its zones, their state."""
