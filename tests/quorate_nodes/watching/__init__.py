"""Processes and objects on the nodes of a test, as they change while it does something."""
