"""What master, agents and tools say to each other, and which of it each may say."""
