"""The view of a zone that users get: states of partitions, status, events, previews of moves."""
