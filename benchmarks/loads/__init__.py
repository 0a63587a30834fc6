"""Loads on the servers: clients as applications have them, and raw loaders."""
