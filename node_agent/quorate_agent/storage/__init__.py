"""The storage engines: in memory and on RocksDB, behind the core's Storage."""

from quorate.facts.errors import QuorateError


class DatabaseRefused(QuorateError):
    """The database in a zone's folder cannot be used: names the file and the way out."""


class StorageBroken(QuorateError):
    """The state on disk is unknown: the only way out is to stop the process and start it again."""
