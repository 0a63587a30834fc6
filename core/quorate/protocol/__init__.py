"""What master and copies do on each event (docs/protocol.md)."""
