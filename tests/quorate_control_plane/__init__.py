"""A real Kubernetes control plane as local processes, for tests: no root, no containers."""
