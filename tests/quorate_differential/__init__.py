"""A real Redis and the agent's commands side by side: random streams, and replies compared."""
