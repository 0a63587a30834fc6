"""Quorate on the nodes of a test: installed, resized, given work and damaged."""
