"""The commands about the whole agent: INFO and CONFIG, CLUSTER, COMMAND."""
