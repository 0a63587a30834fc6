"""Whether copies agree: pure functions of what was read."""
