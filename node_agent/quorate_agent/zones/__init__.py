"""The open zones of this agent: opening them, their turns and syncs, room in their storage."""
