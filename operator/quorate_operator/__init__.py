"""The operator: keeps ownership in a metastore, leads agents, answers for zones."""
