"""What is measured beside Quorate in the same run."""
