"""Declared objects and the state of a cluster: read, judged, shown."""
