"""The whole story on this machine, in eight steps."""
