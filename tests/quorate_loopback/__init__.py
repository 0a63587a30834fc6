"""Real links over loopback in a test's own event loop: their ends, agents, a runner, its API."""
