"""The metastore in a dict: for the simulator and for tests of code that uses a metastore."""

from quorate.protocol.metastore import Conflict, Key, Revision, Stored, Value


class MemoryMetastore:
    """A metastore that ends with the process.  Deterministic: revisions count up from 1."""

    def __init__(self) -> None:
        self._stored: dict[Key, Stored] = {}
        self._revision = 0
        self._master_term = 0

    @property
    def stored(self) -> dict[Key, Stored]:
        """The present content."""
        return self._stored

    async def acquire_master_term(self, above: int = 0) -> int:
        """See Metastore."""
        self._master_term = max(self._master_term, above) + 1
        return self._master_term

    async def load(self) -> dict[Key, Stored]:
        """See Metastore."""
        return dict(self._stored)

    async def read(self, key: Key) -> Stored | None:
        """See Metastore."""
        return self._stored.get(key)

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        """See Metastore."""
        present = self._stored.get(key)
        if (present.revision if present is not None else None) != expected:
            raise Conflict(f"{key}: expected revision {expected}, found {present}")
        if value is None:
            self._stored.pop(key, None)
            return ""
        self._revision += 1
        self._stored[key] = Stored(value, str(self._revision))
        return str(self._revision)
