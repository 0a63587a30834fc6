"""Spark over a zone: reads every copy as a data source, and checks whether all copies agree."""
