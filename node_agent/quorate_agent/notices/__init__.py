"""What clients are told unasked: invalidations, hand-overs, events."""
