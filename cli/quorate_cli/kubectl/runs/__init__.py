"""Runs of zones as objects: each command creates one and follows it to its end."""
