"""An agent alone, in the test's own process: it is primary of all partitions of its zone."""
