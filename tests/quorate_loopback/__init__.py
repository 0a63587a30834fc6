"""Real links over loopback in a test's own event loop: their ends, agents, a leading runner."""
