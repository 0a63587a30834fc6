"""What clients are sent without asking: invalidations, hand-overs, events."""
