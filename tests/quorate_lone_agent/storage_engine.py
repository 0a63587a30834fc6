"""Every storage engine, for tests of what the core may rely on."""

from collections.abc import Callable
from pathlib import Path

from quorate.protocol.storage import Storage
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.storage.rocks import RocksStorage
from quorate_sim.disk import Image, SimStorage


class Engine:
    """One engine under test: opens storages and, where it keeps anything, opens them again."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.durable = name in ("rocks", "simulated")
        self._image = Image()
        self._folder = folder
        self._opened: list[Storage] = []

    def open(self) -> Storage:
        made: dict[str, Callable[[], Storage]] = {
            "memory": MemoryStorage,
            "memory with a bound": lambda: MemoryStorage(1 << 40),
            "rocks": lambda: RocksStorage(self._folder / "zone"),
            "simulated": lambda: SimStorage(self._image),
        }
        storage = made[self.name]()
        self._opened.append(storage)
        return storage

    def reopened(self, storage: Storage) -> Storage:
        """The same data after close and open; for memory the very same storage."""
        if not self.durable:
            return storage
        storage.sync()
        storage.close()
        return self.open()

    def close(self) -> None:
        for storage in self._opened:
            storage.close()
