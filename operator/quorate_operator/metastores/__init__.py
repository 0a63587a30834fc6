"""Where ownership is kept: what the core's `Metastore` asks, over three kinds of storage."""
