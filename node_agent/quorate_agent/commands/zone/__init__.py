"""Commands about a whole zone: its slots and facts, all keys of this agent listed or flushed."""
