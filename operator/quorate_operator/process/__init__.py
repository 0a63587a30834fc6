"""Parts of every operator process: clock, logs, health, metrics, an orderly end."""
