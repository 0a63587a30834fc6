"""Records in `folder.json` what the zones' databases have synced, off the event loop.

A thread writes it, and only if something was synced since: an idle agent writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from quorate.protocol.storage import Storage
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.zones.stored_zones import what_is_synced

_log = logging.getLogger("quorate.agent")


class SyncRecord:
    """`engines` are the open storages by zone, as the event loop sees them.

    `broken` is told of errors that are not the disk's: the agent must end."""

    def __init__(
        self, folder: DataFolder, engines: Mapping[str, Storage], broken: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._engines = engines
        self._broken = broken
        self._saving: asyncio.Future[None] | None = None
        self._failed = False

    def note(self) -> None:
        """Note what is synced by now, and have it saved; called once a second."""
        if self._saving is None and self._folder.note_synced(what_is_synced(self._engines)):
            self._saving = asyncio.get_running_loop().run_in_executor(None, self._folder.save)
            self._saving.add_done_callback(self._saved)

    def save_last(self) -> None:
        """Note what is synced after all storages are closed, and save it; blocks."""
        if self._folder.note_synced(what_is_synced(self._engines)):
            try:
                self._folder.save()
            except OSError as error:
                self._warn(error)

    def _saved(self, done: asyncio.Future[None]) -> None:
        self._saving = None
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, OSError):
            self._warn(error)
        elif error is not None:
            self._broken(f"{self._problem}: {type(error).__name__}: {error}")
        else:
            self._failed = False

    def _warn(self, error: OSError) -> None:
        """Log once until it succeeds: an older record is correct, it only detects less."""
        if not self._failed:
            self._failed = True
            _log.warning("%s: %s", self._problem, error)

    @property
    def _problem(self) -> str:
        return f"data folder {self._folder.path}: the synced position cannot be recorded"
