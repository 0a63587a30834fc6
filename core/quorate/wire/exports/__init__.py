"""Backups and restores: their runs, the schedule, and the results that their pods tell."""
