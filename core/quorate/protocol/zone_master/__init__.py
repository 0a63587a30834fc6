"""What the master decides for one zone: its rows, one migration step after the other."""
