"""Zones and clusters declared on Kubernetes: watches them, judges them, leads them, writes their
status."""
