"""Copies of one partition without agents: they take updates, activate, and fill from each other."""
