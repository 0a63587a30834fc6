"""Which nodes should own each partition, and by which safe steps a row gets there."""
