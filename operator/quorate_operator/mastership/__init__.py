"""Election, and the work of a master: dials agents, lets the core decide, writes rows."""
