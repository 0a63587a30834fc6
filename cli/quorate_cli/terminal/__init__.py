"""Words for the person at the keyboard."""
