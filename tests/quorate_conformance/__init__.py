"""Judges case files: what reference systems do, and what Quorate does in their place."""
