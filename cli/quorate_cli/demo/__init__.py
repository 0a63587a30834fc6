"""The demo: the whole story on this machine, in eight steps."""
