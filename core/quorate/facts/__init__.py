"""Values everything else is about: rows, counters, lineages, nodes, keys."""
