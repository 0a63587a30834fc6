"""The operator without Kubernetes: one process, one SQLite file, an HTTP API."""
