"""The process's use of its machine: memory, descriptors, time for garbage collection."""
