"""Plain values that all other packages use: rows, counters, lineages, nodes, keys."""
