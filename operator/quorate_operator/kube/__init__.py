"""The API server: how to reach it, one client for it, and the process that leads by it."""
