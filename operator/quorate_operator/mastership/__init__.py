"""Election, and the work of a master: dialing agents, letting the core decide, writing rows."""
