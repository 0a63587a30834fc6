"""What any operator process has: a clock, logs, health, metrics, an orderly end."""
