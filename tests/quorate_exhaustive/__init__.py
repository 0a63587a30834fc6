"""Every order of events of small clusters, explored breadth-first over the product's own code."""
