"""Schedules of runs: when one is created, how many are kept, and which exports stay."""
