"""The core's master alone: a metastore that always answers, agents that do as they are told."""
