"""A cluster of real processes on loopback, for tests and benchmarks: one operator, its agents."""
