"""The API server: how to reach it, one client for it, watches, and the pace of requests."""
