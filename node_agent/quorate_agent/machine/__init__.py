"""What the process takes of its machine: memory, descriptors, time for garbage."""
