"""Gets what a zone needs to open: descriptors, a client port, a usable storage.

If anything is missing, only this zone is refused, with a reason; all that it was given is returned,
and the other zones go on.
"""

import logging
import socket
from collections.abc import Iterable

from quorate.facts.zone import ZoneRecord
from quorate.protocol.storage import ZoneRefused
from quorate_agent.clients.ports import ClientPorts
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.memory import MemoryStorage
from quorate_agent.zones.runtime import Engine
from quorate_agent.zones.stored_zones import open_zone

_log = logging.getLogger("quorate.agent.zone")


class ZoneOpening:
    """Opens the zones of agent `node`, and takes back the resources of closed ones."""

    def __init__(
        self,
        node: str,
        folder: DataFolder,
        descriptors: Descriptors,
        ports: ClientPorts,
        *,
        chooses: bool,
    ) -> None:
        """`chooses`: the agent chooses client ports itself; else the master has given them."""
        self._node = node
        self._folder = folder
        self._descriptors = descriptors
        self._ports = ports
        self._chooses = chooses
        self._sockets: dict[str, list[socket.socket]] = {}
        self._refused: dict[str, str] = {}

    def open(self, record: ZoneRecord, stored: Engine | None) -> Engine:
        """Return the zone's storage (`stored` if it is open already), with sockets listening for
        clients.

        ZoneRefused: nothing more than before is open."""
        uid = record.uid
        try:
            if stored is None:
                self._descriptors.take_zone(uid, record.persistent)
            self._sockets[uid] = self._listening(record)
            engine = stored or self._engine(record)
        except BaseException as error:
            self._listens_no_more(uid)
            if stored is None:
                self._descriptors.give_back(uid)
            if isinstance(error, ZoneRefused) and self._refused.get(uid) != str(error):
                self._refused[uid] = str(error)
                _log.warning("zone %s is refused: %s", record.name, error)
            raise
        self._refused.pop(uid, None)
        return engine

    def _listening(self, record: ZoneRecord) -> list[socket.socket]:
        if self._chooses:
            return self._ports.bind(record.uid, record.ports.get(self._node, 0))
        return self._ports.bind_given(record.uid, record.port)

    def take_sockets(self, uid: str) -> list[socket.socket]:
        """Return the listening sockets of an open zone; the caller closes them."""
        return self._sockets.pop(uid, [])

    def closed(self, uid: str) -> None:
        """Take back the resources of a zone of which nothing is open any more."""
        self._listens_no_more(uid)
        self._descriptors.give_back(uid)

    def _listens_no_more(self, uid: str) -> None:
        _close(self.take_sockets(uid))
        self._ports.give_back(uid)

    def _engine(self, record: ZoneRecord) -> Engine:
        if not record.persistent:
            return MemoryStorage(record.max_memory_bytes)
        try:
            return open_zone(self._folder, record.uid, self._descriptors.tables)
        except (DatabaseRefused, StorageBroken) as error:
            raise ZoneRefused(str(error)) from error


def _close(sockets: Iterable[socket.socket]) -> None:
    for each in sockets:
        each.close()
