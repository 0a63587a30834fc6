"""Agents that follow a script, for what real agents do not do on demand."""
