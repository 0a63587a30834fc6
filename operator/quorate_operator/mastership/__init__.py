"""Who is master, and what a master does: dials agents, lets the core decide, writes rows."""
