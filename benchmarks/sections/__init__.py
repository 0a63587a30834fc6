"""Sections of docs/benchmarks.md: each starts what it needs, measures, and answers a table."""
