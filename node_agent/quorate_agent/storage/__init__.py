"""Where copies live: an engine in memory and one on RocksDB, behind the core's Storage."""

from quorate.facts.errors import QuorateError


class DatabaseRefused(QuorateError):
    """The database in a zone's folder cannot be used: names the file and the way out."""


class StorageBroken(QuorateError):
    """What is on disk is unknown: the process must stop and be started again, nothing else."""
