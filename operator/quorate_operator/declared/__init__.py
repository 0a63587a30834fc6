"""Zones and clusters declared on Kubernetes: watches, judges and leads them, writes their
status."""
