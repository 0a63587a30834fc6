"""Where ownership is kept: the core's `Metastore` over three kinds of storage."""
