"""The operator: keeps ownership in a metastore, leads agents, writes the status of zones."""
