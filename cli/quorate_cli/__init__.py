"""The `quorate` command: a cluster on this machine, its zones, what they are doing."""
