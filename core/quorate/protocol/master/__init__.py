"""What the master decides for a whole cluster: who is there, which migrations run."""
