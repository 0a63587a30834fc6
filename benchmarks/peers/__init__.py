"""The peers that are measured beside Quorate in the same run."""
