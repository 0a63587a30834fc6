"""Builds of before: their frames and records as they were recorded, their agents as processes."""
