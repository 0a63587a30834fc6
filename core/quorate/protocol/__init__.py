"""The protocol of master and copies: how each reacts to each event (docs/protocol.md)."""
