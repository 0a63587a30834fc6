"""The Jobs that the operator makes: what is in them, how far they are, and how they ended."""
