"""The commands: what each does."""
