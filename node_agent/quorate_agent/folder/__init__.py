"""The agent's data folder: its identity, small durable files, room on the disk."""
