"""Processes that outlive the command which started them, and the folder that they live in."""
