"""A development cluster: real processes on this machine."""
