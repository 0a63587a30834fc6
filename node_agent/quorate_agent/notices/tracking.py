"""Client-side caching: which clients may have cached which keys, and when they must forget them.

While this agent serves a partition, it notes the keys that tracking clients read of it.  A write
removes the note, and the client is told at the end of the turn, before any reply that could show
the new value.  The next primary does not know these notes.  So when this agent no longer serves the
partition (handed over, lease lost, another term), clients are told to forget all its noted keys.  A
read that this agent did not answer as a serving primary is not noted: the client is told to forget
the key right behind the reply, even if that is an error.  Source: docs/protocol.md, section 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from quorate.facts.keyspace import is_reserved, key_partition
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.waiters import Clientless
from quorate.protocol.storage import Operation
from quorate_agent.clients.connection import ClientConnection, Slot
from quorate_agent.notices.prefixes import Prefixes
from quorate_agent.notices.pushes import push, push_in_order
from quorate_agent.resp.command import Command
from quorate_agent.resp.commands.session.pubsub import INVALIDATIONS
from quorate_agent.resp.replies import array, bulk, bulks, integer, null
from quorate_agent.resp.session import Connection
from quorate_agent.resp.tables.table import resolve
from quorate_agent.resp.tracking_mode import TrackingMode
from quorate_agent.resp.view import is_live

NOTES_MAX = 200_000
"""Notes of all clients of a zone, one key each: some 30 MB.  Beyond, the keys of the partition with
the most are forgotten, and clients told so."""

NOTES_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of the noted keys, which may be long, and need not exist."""

SURE_MS = 500
"""How much longer a lease must last for a read to be noted: clients are told to forget so long
before another agent may serve.  An agent that is not running when its lease ends has told them by
then."""

BEHIND_BYTES_MAX = 1024 * 1024
"""Bytes of keys, with what each takes beside, that a connection is told of behind one reply.

Beyond, it is told to forget everything: the reply may never come (WAIT 1 0)."""

_KEY_OVERHEAD_BYTES = 100

LOOK_MS = 1_000
"""How often connections that are gone, or no longer track, are removed."""


class _Watched:
    """One partition while `role` serves it: which connections may have cached which of its keys.

    Most keys are cached by one connection; these have its id instead of a set."""

    __slots__ = ("keys", "role")

    def __init__(self, role: Primary) -> None:
        self.role = role
        self.keys: dict[bytes, int | set[int]] = {}


class _Behind:
    """The keys that a connection is told to forget behind its reply at `place`; None: all."""

    __slots__ = ("_bytes", "keys", "place")

    def __init__(self, place: Slot | bytes) -> None:
        self.place = place
        self.keys: dict[bytes, None] | None = {}
        self._bytes = 0

    def add(self, keys: list[bytes] | None) -> None:
        """Tell of these keys too."""
        if keys is None:
            self.keys = None
        if self.keys is None or keys is None:
            return
        for key in keys:
            if key not in self.keys:
                self.keys[key] = None
                self._bytes += len(key) + _KEY_OVERHEAD_BYTES
        if self._bytes > BEHIND_BYTES_MAX:
            self.keys = None


class Tracking:
    """The tracking clients of one zone on this agent.  `clients`: all clients, by id."""

    def __init__(self, replicas: Replicas, clients: Mapping[int, ClientConnection]) -> None:
        self._replicas = replicas
        self._clients = clients
        self.trackers: dict[int, ClientConnection] = {}
        self.note_count = 0
        self._note_bytes = 0
        self._watched: dict[int, _Watched] = {}
        self.prefixes = Prefixes()
        # Sent at the end of the turn:
        self._stale: dict[int, dict[bytes, None]] = {}  # keys by connection
        self._broadcast: dict[bytes, dict[bytes, int]] = {}  # by prefix: keys and their writers
        self._all_stale: dict[int, None] = {}  # connections that must forget everything
        self._behind: dict[ClientConnection, list[_Behind]] = {}  # one or two of a connection
        self._writer = 0  # the client whose command is being executed; 0: none
        self._read: list[bytes] = []  # keys that it reads
        self._elsewhere: list[bytes] = []  # those of them that are not noted
        self._untracked: list[bytes] = []  # keys read by an EXEC that has not begun to track yet
        self._look_ms = 0

    @property
    def has_to_tell(self) -> bool:
        """Whether any client may have to be told anything."""
        return bool(self.trackers or self._behind)

    @property
    def key_count(self) -> int:
        """Keys that some client may have cached."""
        return sum(len(watched.keys) for watched in self._watched.values())

    @property
    def prefix_count(self) -> int:
        """Prefixes that are broadcast."""
        return len(self.prefixes)

    # --- what clients read -----------------------------------------------------------------------

    def began(self, client: ClientConnection) -> None:
        """Track a client that has sent CLIENT TRACKING ON."""
        mode = client.state.tracking
        assert mode is not None
        self.trackers[client.state.id] = client
        for prefix in mode.prefixes:
            self.prefixes.add(prefix, client.state.id)
        if mode.broadcast:
            self._watch_all()

    def before(self, client: ClientConnection, args: list[bytes], now_ms: int) -> None:
        """Note what a command reads that is about to be executed."""
        state = client.state
        self._writer = state.id
        mode = state.tracking
        for key in _reads(state, args):
            if mode is not None and mode.broadcast and not mode.covers(key):
                continue
            self._read.append(key)
            partition = key_partition(key, self._replicas.record.partitions)
            role = self._replicas.primaries[partition]
            if mode is None:
                self._untracked.append(key)
            if role is None or not _is_sure(role, now_ms):
                self._elsewhere.append(key)
                continue
            watched = self._watch(partition, role)
            if mode is None or not mode.broadcast:
                self._note(watched, key, state.id)

    def after(self, client: ClientConnection, args: list[bytes]) -> None:
        """Tell the client not to keep what the executed (or waiting) command reads elsewhere."""
        self._writer = 0
        mode = client.state.tracking
        untracked, self._untracked = self._untracked, []
        if untracked and mode is None and client.queue:
            self._hold(client, untracked)
        read, self._read = self._read, []  # EXEC has emptied its transaction by now
        keys, self._elsewhere = self._elsewhere, []
        if mode is not None:
            if _is_parked(client) and not mode.broadcast:
                keys = read
            if keys:  # even for an error: redis-py would wait for the reply and not ask again
                self._tell_behind(client, mode, keys)
        if (
            mode is not None
            and mode.caching
            and client.state.transaction is None
            and args[0].lower() != b"client"
        ):
            mode.caching = False
        if self._watched and not self.trackers:
            self._look()  # a transaction that might have begun to track did not

    def _watch(self, partition: int, role: Primary) -> _Watched:
        watched = self._watched.get(partition)
        if watched is not None:
            if watched.role is role:
                return watched
            self._end(partition)
        watched = self._watched[partition] = _Watched(role)
        role.changed = partial(self._wrote, watched)
        return watched

    def _watch_all(self) -> None:
        """Watch all partitions: broadcasting clients are told of keys that they have not read."""
        now_ms = self._replicas.now.boot_ms
        for partition, role in self._replicas.roles.items():
            if partition not in self._watched and _is_sure(role, now_ms):
                self._watch(partition, role)

    def expire(self, role: Primary, keys: Iterable[bytes], now_ms: int) -> bool:
        """Delete those of `keys` that have expired, before the keys are shown; return whether any
        has.

        Clients that cached one are told before any reply shows that it is gone."""
        read: list[bytes] = []  # by the client whose command this is: it sees that they are gone
        expired = False
        watched = self._watched.get(role.copy.partition)
        for key in keys:
            row = role.copy.get(key)
            if row is not None and row.value is not None and not is_live(row, now_ms):
                known = watched.keys.get(key) if watched is not None else None
                if known is not None and self._writer in (
                    known if isinstance(known, set) else (known,)
                ):
                    read.append(key)
                role.write(((key, None, 0),))
                role.wait(Clientless((key,)))  # a reader that sees it waits, as for any write
                expired = True
        if expired:
            self._replicas.commands_wrote(role)
            self._tell_stale(self._replicas.now.boot_ms)
            if watched is not None and watched is self._watched.get(role.copy.partition):
                for key in read:
                    self._note(watched, key, self._writer)
        return expired

    def _note(self, watched: _Watched, key: bytes, id: int) -> None:
        known = watched.keys.get(key)
        if known is None:
            watched.keys[key] = id
            self._note_bytes += len(key)
        elif isinstance(known, set):
            if id in known:
                return
            known.add(id)
        elif known != id:
            watched.keys[key] = {known, id}
        else:
            return
        self.note_count += 1
        if self.note_count > NOTES_MAX:
            self._forget(max(self._watched.values(), key=lambda each: len(each.keys)))
        elif self._note_bytes > NOTES_BYTES_MAX:
            self._forget(max(self._watched.values(), key=lambda each: sum(map(len, each.keys))))

    # --- what makes it stale ---------------------------------------------------------------------

    def _wrote(self, watched: _Watched, operations: tuple[Operation, ...]) -> None:
        """Take note of a write of the primary; no client has been answered yet."""
        for key, _, _ in operations:
            if key is None:  # FLUSHALL
                self._forget(watched)
                continue
            known = watched.keys.pop(key, None)
            if known is not None:
                ids = known if isinstance(known, set) else (known,)
                self.note_count -= len(ids)
                self._note_bytes -= len(key)
                for id in ids:
                    if id != self._writer or self._hears_itself(id):
                        self._stale.setdefault(id, {})[key] = None
            if self.prefixes and not is_reserved(key):
                for prefix in self.prefixes.of(key):
                    writers = self._broadcast.setdefault(prefix, {})
                    same = writers.get(key, self._writer) == self._writer
                    writers[key] = self._writer if same else 0

    def flushed(self) -> None:
        """Tell every tracking client to forget everything, as Redis does after FLUSHALL."""
        self._all_stale.update(dict.fromkeys(self.trackers))

    def _hears_itself(self, id: int) -> bool:
        client = self._clients.get(id)
        mode = client.state.tracking if client is not None else None
        return mode is not None and not mode.noloop

    def _forget(self, watched: _Watched) -> None:
        """Mark all noted keys of the partition as stale."""
        for key, known in watched.keys.items():
            ids = known if isinstance(known, set) else (known,)
            self.note_count -= len(ids)
            self._note_bytes -= len(key)
            for id in ids:
                self._stale.setdefault(id, {})[key] = None
        watched.keys = {}

    def _end(self, partition: int) -> None:
        """Stop watching a partition that is no longer served, or in another term: its writes are
        not seen."""
        watched = self._watched.pop(partition)
        watched.role.changed = None
        self._forget(watched)
        for _, id in self.prefixes.pairs():
            self._all_stale[id] = None

    # --- telling ---------------------------------------------------------------------------------

    def tell(self, now_ms: int) -> None:
        """Tell clients what became stale, before any reply of this turn leaves."""
        self._tell_stale(now_ms)
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + LOOK_MS
            self._look()

    def _tell_stale(self, now_ms: int) -> None:
        primaries = self._replicas.primaries
        ended = [
            partition
            for partition, watched in self._watched.items()
            if primaries[partition] is not watched.role or not _is_sure(watched.role, now_ms)
        ]
        for partition in ended:
            self._end(partition)
        if self.prefixes:
            self._watch_all()
        if self._broadcast:
            self._tell_prefixes()
        if self._stale:
            stale, self._stale = self._stale, {}
            for id, keys in stale.items():
                if id not in self._all_stale:
                    self._tell(id, list(keys), broadcast=False)
        if self._all_stale:
            all_stale, self._all_stale = self._all_stale, {}
            for id in all_stale:
                self._tell(id, None)
        if self._behind:
            self._tell_answered()

    def _tell_prefixes(self) -> None:
        broadcast, self._broadcast = self._broadcast, {}
        for prefix, writers in broadcast.items():
            keys, ids = list(writers), {*writers.values()}
            for id in self.prefixes.told(prefix):
                mine = id in ids and not self._hears_itself(id)
                told = [key for key in keys if writers[key] != id] if mine else keys
                if told and id not in self._all_stale:
                    self._tell(id, told, broadcast=True)

    def _tell(self, id: int, keys: list[bytes] | None, broadcast: bool | None = None) -> None:
        """Tell one connection to forget `keys` (None: all), if it still tracks in that way."""
        client = self._clients.get(id)
        mode = client.state.tracking if client is not None else None
        if client is None or mode is None or broadcast not in (None, mode.broadcast):
            return
        # Now, whatever its earlier commands wait for; their replies may still show the old value.
        self._send(client, mode, keys)
        if any(map(_may_be_kept, client.queue)):
            self._tell_behind(client, mode, keys)

    def _tell_behind(
        self, client: ClientConnection, mode: TrackingMode, keys: list[bytes] | None
    ) -> None:
        """Tell behind every reply that the client still waits for."""
        if not mode.redirect:
            if client.state.resp3:
                push_in_order(client, _invalidation(client.state, keys))
        elif client.queue:
            self._hold(client, keys)
        else:
            if client.out:
                client.write()
            self._send(client, mode, keys)

    def _hold(self, client: ClientConnection, keys: list[bytes] | None) -> None:
        """Tell of `keys` behind the last reply that the client waits for now.

        Of one place there is one entry, and of places as many as the client's queue has."""
        place = _last(client)
        held = self._behind.setdefault(client, [])
        if not held or held[-1].place is not place:
            held.append(_Behind(place))
        held[-1].add(keys)

    def _tell_answered(self) -> None:
        """Tell what had to wait for replies that have left by now."""
        for client, held in list(self._behind.items()):
            if client.state.id not in self._clients:
                held.clear()
            mode = client.state.tracking  # after EXEC, as EXEC has set it
            while held and not any(item is held[0].place for item in client.queue):
                keys = held.pop(0).keys
                if mode is not None:
                    self._send(client, mode, None if keys is None else list(keys))
            if not held:
                del self._behind[client]

    def _send(self, client: ClientConnection, mode: TrackingMode, keys: list[bytes] | None) -> None:
        listener = client
        if mode.redirect:
            found = self._clients.get(mode.redirect)
            if found is None:
                mode.is_broken = True
                if client.state.resp3:
                    push(client, _pushed(bulk(b"tracking-redir-broken"), integer(mode.redirect)))
                return
            listener = found
            if not listener.state.resp3 and listener.state.subscribed:
                told = _keys(client.state, keys)
                # It could not tell a message from a reply that it waits for.
                push_in_order(listener, array((bulk(b"message"), bulk(INVALIDATIONS), told)))
        if listener.state.resp3:
            push(listener, _invalidation(client.state, keys))

    # --- who is there ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Forget connections that are gone, or no longer track."""
        for id, client in list(self.trackers.items()):
            if client.state.tracking is None or id not in self._clients:
                del self.trackers[id]
        for prefix, id in list(self.prefixes.pairs()):
            tracker = self.trackers.get(id)
            mode = tracker.state.tracking if tracker is not None else None
            if mode is None or prefix not in mode.prefixes:
                self.prefixes.remove(prefix, id)
        if not self.trackers:
            for watched in self._watched.values():
                watched.role.changed = None
            self._watched.clear()
            self._stale.clear()
            self.note_count = self._note_bytes = 0


def _is_sure(role: Primary, now_ms: int) -> bool:
    """Return whether no other agent will serve the partition soon."""
    return role.serves(now_ms + SURE_MS)


def _is_parked(client: ClientConnection) -> bool:
    """Return whether the client's last command is parked, and so may never be answered with a
    value."""
    last = client.queue[-1] if client.queue else b""
    return isinstance(last, Slot) and last.deadline_ms > 0


def _may_be_kept(place: Slot | bytes) -> bool:
    """Return whether a client may cache what this reply shows.

    It caches nothing of a write's reply; a transaction may have read."""
    return isinstance(place, bytes) or not place.command.is_write or place.command.name == b"exec"


def _last(client: ClientConnection) -> Slot | bytes:
    """Return the last reply that the client waits for, as an object that no other place shares."""
    last = client.queue[-1]
    if type(last) is bytes:  # may be a constant, which stands for many replies
        last = client.queue[-1] = _OneReply(last)
    return last


class _OneReply(bytes):
    """The reply of one place; no other place has the same object."""


def _reads(state: Connection, args: list[bytes]) -> Iterable[bytes]:
    """Return the keys whose values the client may cache when the command is executed now."""
    command = resolve(args)
    if isinstance(command, bytes):
        return ()
    mode = state.tracking
    keeps = mode is not None and mode.keeps
    if state.transaction is None:
        return command.keys(args) if keeps and "readonly" in command.flags else ()
    if command.name != b"exec":
        return ()
    return _reads_of_transaction(state.transaction.commands, keeps)


def _reads_of_transaction(
    commands: Sequence[tuple[Command, list[bytes]]], keeps: bool
) -> Iterable[bytes]:
    """Return those keys for an EXEC, which may begin to track on its way; in doubt a key is
    included."""
    keys: list[bytes] = []
    for command, words in commands:
        if command.name in (b"client|caching", b"client|tracking"):
            keeps = True
        elif keeps and "readonly" in command.flags:
            keys.extend(command.keys(words))
    return keys


def _invalidation(state: Connection, keys: list[bytes] | None) -> bytes:
    return _pushed(bulk(b"invalidate"), _keys(state, keys))


def _keys(state: Connection, keys: list[bytes] | None) -> bytes:
    return null(state.resp3) if keys is None else bulks(keys)


def _pushed(*parts: bytes) -> bytes:
    return b">%d\r\n%b" % (len(parts), b"".join(parts))
