"""The messages among master, agents and tools, and which role may send which."""
