"""Decisions of the master for a whole cluster: migration order, restarts, client ports."""
