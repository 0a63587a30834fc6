"""Kubernetes objects that the operator makes for managed agents, and keeps as they are to be."""
