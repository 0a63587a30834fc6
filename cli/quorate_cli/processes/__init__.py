"""Processes that outlive the command that started them, and the cluster's folder."""
