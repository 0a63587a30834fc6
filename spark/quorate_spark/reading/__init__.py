"""Reading the copies of a zone, until what they say can be judged."""
