"""Writes of a running agent to its data folder, on a disk that may be full.

A failed write ends nothing: it is logged once, the caller refuses what depends on it, and the
request comes again (the master repeats what is not confirmed).
"""

import logging
from collections.abc import Callable

from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.masterships import MastershipNotKept
from quorate_agent.folder.data_folder import DataFolder

_log = logging.getLogger("quorate.agent")


class FolderWrites:
    """Writes of agent `node` into `folder`: each is short, rare, and synced on the event loop.

    Only `remove_zone` is called in a thread."""

    def __init__(self, node: str, folder: DataFolder) -> None:
        self._node = node
        self._folder = folder
        self._said: set[str] = set()
        """Writes that failed last time; their failure is in the log already."""
        self._unkept_term = 0
        """The mastership that was not obeyed because there was no room to record it."""

    def keep_zone(self, record: ZoneRecord) -> bool:
        """Remember the zone's declaration; return whether there was room."""
        return self._done(
            lambda: self._folder.keep_zone(record),
            f"zone {record.name}: what it was declared to be cannot be recorded",
            "it is tried again when its rows change",
        )

    def forget_zone(self, uid: str) -> bool:
        """Record that a zone is to be removed; return whether there was room."""
        return self._done(
            lambda: self._folder.forget_zone(uid),
            f"zone {uid}: that it was deleted cannot be recorded",
            "its data stays until there is room",
        )

    def remove_zone(self, uid: str) -> bool:
        """Delete the data of a forgotten zone whose storage is closed; return whether it is gone.

        From any thread: it takes as long as the disk does."""
        return self._done(
            lambda: self._folder.remove_zone(uid),
            f"zone {uid}: its data cannot be removed",
            "it is tried again when the master asks, and at the next start",
        )

    def why_not_kept(self, term: int, word: str) -> str:
        """Return why a master that greets again cannot be obeyed yet; empty: it may try.

        It is refused before it is connected.  Otherwise it would count this agent, which connects
        again and again, as online, and what the agent is primary of would stay unserved.
        """
        if term == self._unkept_term:
            try:
                self.raise_master_term(term, word)
            except MastershipNotKept as error:
                return str(error)
        return ""

    def raise_master_term(self, term: int, word: str) -> None:
        """Remember the highest mastership obeyed; MastershipNotKept: there was no room."""
        what = f"agent {self._node}: mastership {term} cannot be recorded"
        then = "its master is not obeyed until there is room"
        if not self._done(lambda: self._folder.raise_master_term(term, word), what, then):
            self._unkept_term = term
            raise MastershipNotKept(
                f"{what}, so it is not obeyed. Way out: free some space on the disk of"
                f" {self._folder.path}"
            )
        self._unkept_term = 0

    def _done(self, write: Callable[[], None], what: str, then: str) -> bool:
        try:
            write()
        except OSError as error:
            if what not in self._said:
                self._said.add(what)
                _log.warning("%s: %s; %s", what, error, then)
            return False
        self._said.discard(what)
        return True
