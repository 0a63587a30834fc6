"""Figures of a session: how much is measured, runs by turns, the machine, and the page."""
