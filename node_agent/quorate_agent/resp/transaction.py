"""MULTI and EXEC: queued commands that run all or not at all.

EXEC becomes one keyed command over all queued and watched keys.  If they are of one partition, it
is one update, redirected, parked, forwarded and acknowledged as any other command; else its parts
are prepared and decided (across.py).  Source: docs/protocol.md, sections 8 and 9.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from quorate.protocol.storage import Row
from quorate_agent.resp.command import WORD_BYTES, Command, Scope
from quorate_agent.resp.replies import OK, VALUE_BYTES_MAX, array, error, null_array
from quorate_agent.resp.view import KeyView, is_live

QUEUED = b"+QUEUED\r\n"
BYTES_MAX = 64 * 1024 * 1024
"""Bytes that one transaction takes until EXEC, and of what it writes: an update fits into one frame
between agents."""
REWRITTEN_BYTES_MAX = 2 * VALUE_BYTES_MAX
"""Bytes of the values that the commands of one EXEC make anew, each time counted.

That takes some 2 ms per MiB, and 10 for collections that are too long to be kept unpacked; the
agent does nothing else meanwhile.  Two changes of the longest value fit."""

UNCHANGING_S = 0.2
"""Seconds of CPU that those commands of one EXEC may take that change nothing.

The agent does nothing else meanwhile, for no zone.  The time of the others is bounded by the bytes
that they write."""

COMMAND_BYTES = 120
"""Bytes of each queued command beside its words."""

TOO_LARGE = error(b"ERR transaction of more than %d bytes: use smaller ones" % BYTES_MAX)
REWRITES_TOO_MUCH = error(
    b"ERR the commands of this transaction write values of more than %d MiB again: change each key"
    b" with one command of many fields, members or elements, or use smaller transactions"
    % (REWRITTEN_BYTES_MAX >> 20)
)
TAKES_TOO_LONG = error(
    b"ERR the commands of this transaction that change nothing take more than %d ms of CPU: read"
    b" before MULTI, or use smaller transactions" % round(UNCHANGING_S * 1000)
)
NOT_WATCHED = error(
    b"ERR the WATCH before this transaction was not executed, so neither is the transaction"
)
NOT_INSIDE = error(b"ERR Command not allowed inside a transaction")

Seen = tuple[int, int]
"""(term, counter) of a live row when it was watched.

If there was none: term 0, and the last counter."""

CHANGED: Seen = (1 << 60, 0)
"""Of a row that is no longer known: no row is like this, so EXEC takes it for changed."""


class Call(NamedTuple):
    """A command made of others, and its words: the name, then its keys."""

    command: Command
    args: list[bytes]


class PlainCommands(Protocol):
    """Executes the commands of a transaction that name no key."""

    def __call__(self, command: Command, args: list[bytes]) -> bytes:
        """Return the reply."""

    @property
    def resp3(self) -> bool:
        """Whether the connection speaks RESP3 by now: HELLO changes it."""

    def thread_cpu_s(self) -> float:
        """Return the seconds of CPU that commands have taken."""


class NoPlain:
    """Stands for them where every command has a key."""

    __slots__ = ("thread_cpu_s",)
    resp3 = False

    def __init__(self, thread_cpu_s: Callable[[], float]) -> None:
        self.thread_cpu_s = thread_cpu_s

    def __call__(self, command: Command, args: list[bytes]) -> bytes:
        """Raise an error."""
        raise AssertionError(f"{command.name!r} is of no partition")


class Room:
    """The bytes and the time that the commands of one EXEC may still take.

    `left_bytes`: of their replies."""

    __slots__ = ("_at", "_left_s", "_used_s", "left_bytes")

    def __init__(self, plain: PlainCommands) -> None:
        self.left_bytes = BYTES_MAX
        self._left_s = UNCHANGING_S
        self._used_s = plain.thread_cpu_s
        self._at = self._used_s()

    def problem(self) -> bytes:
        """Return the error if there is room for no other command, else b""."""
        if self.left_bytes < 0:
            return TOO_LARGE
        return TAKES_TOO_LONG if self._left_s < 0 else b""

    def count(self, reply: bytes, changed: bool = False) -> None:
        """Count a command that was executed since the last one; `changed`: it changes a row."""
        began, self._at = self._at, self._used_s()
        if not changed:
            self._left_s -= self._at - began
        self.left_bytes -= len(reply)


class Transaction:
    """The commands of one connection since its MULTI."""

    __slots__ = ("bytes", "commands", "refused", "slot")

    def __init__(self, slot: int = -1) -> None:
        self.slot = slot  # of the first key that is watched or queued; -1: none yet
        self.commands: list[tuple[Command, list[bytes]]] = []
        self.refused = False  # a command was wrong, so EXEC runs nothing
        self.bytes = 0  # of the queued commands

    def queue(self, command: Command, args: list[bytes]) -> bytes:
        """Keep a command for EXEC; return the reply to it."""
        if not command.in_transactions:
            return self.refuse(NOT_INSIDE)
        if self.refused:
            return QUEUED  # it will not be executed
        self.bytes += COMMAND_BYTES + WORD_BYTES * len(args) + sum(map(len, args))
        if self.bytes > BYTES_MAX:
            return self.refuse(TOO_LARGE)
        self.commands.append((command, args))
        return QUEUED

    def written_bytes(self, stored_bytes: Callable[[bytes], int]) -> int:
        """Return about how many bytes EXEC writes.

        `stored_bytes` returns the length of the value of a key, which some commands write again."""
        words_bytes, rewritten = 0, set[bytes]()
        for command, words in self.commands:
            if command.is_write:
                words_bytes += sum(map(len, words))
                if command.may_rewrite(len(words)):
                    rewritten.update(command.keys(words)[:1])
        return words_bytes + sum(map(stored_bytes, rewritten))

    def refuse(self, reply: bytes) -> bytes:
        """Make EXEC fail; return `reply`, which says why."""
        self.refused = True
        self.commands.clear()
        self.bytes = 0
        return reply


class Gathered:
    """A KeyView that buffers writes: each command sees the writes of the earlier ones.

    `hand_over` passes them on."""

    __slots__ = ("_view", "changes", "now_ms", "resp3", "written")

    def __init__(self, view: KeyView) -> None:
        self._view = view
        self.now_ms = view.now_ms
        self.resp3 = view.resp3
        self.written: dict[bytes, Row | None] = {}
        self.changes = 0  # calls of `put` and `delete`

    def get(self, key: bytes) -> Row | None:
        """Return the live row of `key`, as the earlier commands left it."""
        if key not in self.written:
            return self._view.get(key)
        row = self.written[key]
        return row if row is not None and is_live(row, self.now_ms) else None

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Write for the commands that follow."""
        self.changes += 1
        self.written[key] = Row(0, 0, expires_at_ms, value)

    def delete(self, key: bytes) -> None:
        """Remove for the commands that follow."""
        self.changes += 1
        self.written[key] = None

    def position(self) -> int:
        """Return the underlying view's position; asked before anything is written."""
        return self._view.position()

    def written_since(self, positions: Mapping[bytes, int]) -> bool:
        """Ask the underlying view."""
        return self._view.written_since(positions)

    def rewritten_bytes(self, key: bytes, before: Row | None) -> int:
        """Return the length of the value that was written for `key` since it had the row `before`;
        0 if none was."""
        row = self.written.get(key)
        return len(row.value or b"") if row is not None and row is not before else 0

    def byte_count(self) -> int:
        """Return the bytes that would be handed over, with some overhead for each row."""
        rows = self.written.items()
        return sum(
            len(key) + 16 + (len(row.value or b"") if row is not None else 0) for key, row in rows
        )

    def hand_over(self) -> None:
        """Pass on the final state, each key once."""
        for key, row in self.written.items():
            if row is not None and row.value is not None:
                self._view.put(key, row.value, row.expires_at)
            elif self._view.get(key) is not None:
                self._view.delete(key)


class Watching:
    """The handler of one WATCH: notes the present rows of its keys in `watched`.

    `unwatched` has the keys until they are noted: however WATCH is refused, they stay there."""

    __slots__ = ("_noted", "unwatched", "watched")

    def __init__(self, watched: dict[bytes, Seen], unwatched: set[bytes]) -> None:
        self.watched = watched
        self.unwatched = unwatched
        self._noted: dict[bytes, None] = {}

    def __call__(self, view: KeyView, args: list[bytes]) -> bytes:
        """OK"""
        for key in args[1:]:
            self.note(key, seen(view, key))
        return OK

    def note(self, key: bytes, row: Seen) -> None:
        """Watch a key; the first time it is named counts."""
        self.unwatched.discard(key)
        if self.watched.get(key, CHANGED) == CHANGED:
            self.watched[key] = row
            self._noted[key] = None

    def forget(self) -> None:
        """Undo it, because it is refused or executed again: the rows it saw may be undone.

        An EXEC that waits behind it has the same `watched`, and is not executed without them."""
        for key in self._noted:
            self.watched[key] = CHANGED
        self.unwatched.update(self._noted)
        self._noted.clear()

    def call(self, keys: list[bytes]) -> Call:
        """Return it as a command of these keys."""
        return Call(_command("watch", self, ("readonly",)), [b"watch", *keys])


class Execution:
    """The handler of one EXEC: runs the queued commands unless a watched row has changed."""

    __slots__ = ("plain", "queued", "watched")

    def __init__(
        self,
        queued: list[tuple[Command, list[bytes]]],
        watched: dict[bytes, Seen],
        plain: PlainCommands,
    ) -> None:
        self.queued = queued
        self.watched = watched
        self.plain = plain

    def __call__(self, view: KeyView, args: list[bytes]) -> bytes:
        """Return the array of replies, or the reply that nothing was executed."""
        answers = self.answers(view)
        return answers if isinstance(answers, bytes) else array(answers)

    def keys_to_write(self) -> Iterator[bytes]:
        """Yield the keys of the commands that may write."""
        for command, words in self.queued:
            if command.is_write:
                yield from command.keys(words)

    def answers(self, view: KeyView) -> list[bytes] | bytes:
        """Return the reply to each command, or one that says why none was executed."""
        if self.watched and _has_changed(view, self.watched):
            return null_array(view.resp3)
        gathered = Gathered(view)
        answers: list[bytes] = []
        room, rewritten = Room(self.plain), 0
        for command, words in self.queued:
            if problem := room.problem():  # before all are executed: they may take far more
                return problem
            key = words[command.first_key] if command.rewrites else b""
            before, changes = gathered.written.get(key), gathered.changes
            answer: bytes
            if command.is_keyed:
                answer = command.handler(gathered, words)
            else:
                answer = self.plain(command, words)
                gathered.resp3 = self.plain.resp3
            answers.append(answer)
            room.count(answer, gathered.changes > changes)
            if command.rewrites:
                rewritten += gathered.rewritten_bytes(key, before)
                if rewritten > REWRITTEN_BYTES_MAX:
                    return REWRITES_TOO_MUCH
        if gathered.byte_count() > room.left_bytes:
            return TOO_LARGE
        gathered.hand_over()
        return answers

    def without_keys(self) -> bytes:
        """Return the reply if no command has a key, and nothing is watched."""
        room, answers = Room(self.plain), list[bytes]()
        for command, words in self.queued:
            if problem := room.problem():
                return problem
            answers.append(self.plain(command, words))
            room.count(answers[-1])
        return TOO_LARGE if room.left_bytes < 0 else array(answers)

    def call(self) -> Call:
        """Return it as a command over all queued and watched keys."""
        flags = {flag for command, _ in self.queued for flag in command.flags}
        kept = tuple(sorted(flags & {"write", "denyoom"}))
        command = _command("exec", self, kept, [words for _, words in self.queued])
        return Call(command, [b"exec", *_keys(self.queued), *self.watched])


def _keys(queued: list[tuple[Command, list[bytes]]]) -> Iterable[bytes]:
    for command, args in queued:
        yield from command.keys(args)


def seen(view: KeyView, key: bytes) -> Seen:
    """Return the state of the key's row for WATCH."""
    row = view.get(key)
    return (0, view.position()) if row is None else (row.term, row.counter)


def _has_changed(view: KeyView, watched: Mapping[bytes, Seen]) -> bool:
    """Return whether a watched row changed; it has, too, if it was absent, was written and is
    absent again."""
    absent: dict[bytes, int] = {}
    for key, before in watched.items():
        row = view.get(key)
        if row is None and before[0] == 0:
            absent[key] = before[1]
        elif row is None or (row.term, row.counter) != before:
            return True
    return bool(absent) and view.written_since(absent)


def _command(
    name: str,
    handler: Callable[..., bytes],
    flags: tuple[str, ...],
    queued: Sequence[list[bytes]] = (),
) -> Command:
    return Command(
        name.encode(), Scope.KEYED, handler, -2, "", "", "", flags,
        first_key=1, last_key=-1, step=1, queued=queued,
    )  # fmt: skip
