"""Readings of copies that are paced, because their tool asked for a limit."""
