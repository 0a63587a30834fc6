"""What the process uses of its machine: memory, descriptors, time for garbage collection."""
