"""The agent's data folder: who it is, small files that survive a crash, room on the disk."""
