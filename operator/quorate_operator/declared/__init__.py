"""Zones and clusters declared on Kubernetes: watching, judging, leading, writing their status."""
