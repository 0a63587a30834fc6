"""What concerns all zones of an agent together: opening, waking, what they set aside at most."""
