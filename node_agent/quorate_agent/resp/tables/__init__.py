"""The command tables: which commands there are, and how COMMAND describes them."""
