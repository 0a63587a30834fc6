"""Kubernetes objects that the operator makes and maintains for managed agents."""
