"""Metastores, which store ownership: the core's `Metastore` over three kinds of storage."""
