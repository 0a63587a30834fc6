"""Messages that clients get without asking: invalidations, hand-overs, events."""
