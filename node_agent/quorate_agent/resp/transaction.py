"""What MULTI gathers and EXEC runs: all of it or nothing.

EXEC becomes one keyed command over the keys of all that were queued and of those watched.  When
they are of one partition it is one update, redirected, parked, forwarded and acknowledged as any
other command; else its parts are prepared and decided (across.py).  Source: docs/protocol.md,
sections 8 and 9.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from quorate.protocol.storage import Row
from quorate_agent.resp.command import Command, Scope
from quorate_agent.resp.replies import OK, array, error, null_array
from quorate_agent.resp.view import KeyView, is_live

QUEUED = b"+QUEUED\r\n"
BYTES_MAX = 64 * 1024 * 1024
"""Words of one transaction, and what it writes: an update fits into one frame between agents."""

TOO_LARGE = error(b"ERR transaction of more than %d bytes: use smaller ones" % BYTES_MAX)
NOT_INSIDE = error(b"ERR Command not allowed inside a transaction")

Seen = tuple[int, int]
"""(term, counter) of a live row when it was watched; term 0, the last counter: there was none."""


class Call(NamedTuple):
    """A command made of others, and its words: the name, then its keys."""

    command: Command
    args: list[bytes]


class Transaction:
    """The commands of one connection since its MULTI."""

    __slots__ = ("bytes", "commands", "refused", "slot")

    def __init__(self, slot: int = -1) -> None:
        self.slot = slot  # of the first key that is watched or queued; -1: there is none yet
        self.commands: list[tuple[Command, list[bytes]]] = []
        self.refused = False  # a command was wrong: EXEC runs nothing
        self.bytes = 0  # of the words that were queued

    def queue(self, command: Command, args: list[bytes]) -> bytes:
        """Keep a command for EXEC; the reply to it."""
        self.bytes += sum(map(len, args))
        if self.bytes > BYTES_MAX:
            return self.refuse(TOO_LARGE)
        if not command.in_transactions:
            return self.refuse(NOT_INSIDE)
        self.commands.append((command, args))
        return QUEUED

    def refuse(self, reply: bytes) -> bytes:
        """Let EXEC fail; `reply` says why."""
        self.refused = True
        self.commands.clear()
        return reply


class Gathered:
    """A KeyView that keeps what is written: commands that follow each other see what those before
    them wrote, and it is handed over in the end."""

    __slots__ = ("_view", "now_ms", "resp3", "written")

    def __init__(self, view: KeyView) -> None:
        self._view = view
        self.now_ms = view.now_ms
        self.resp3 = view.resp3
        self.written: dict[bytes, Row | None] = {}

    def get(self, key: bytes) -> Row | None:
        """The live row of `key`, as those before left it."""
        if key not in self.written:
            return self._view.get(key)
        row = self.written[key]
        return row if row is not None and is_live(row, self.now_ms) else None

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Write, for those that follow."""
        self.written[key] = Row(0, 0, expires_at_ms, value)

    def delete(self, key: bytes) -> None:
        """Remove, for those that follow."""
        self.written[key] = None

    def position(self) -> int:
        """As it was before: for what is asked before anything is written."""
        return self._view.position()

    def written_since(self, key: bytes, position: int) -> bool:
        """As it was before."""
        return self._view.written_since(key, position)

    def byte_count(self) -> int:
        """Bytes of what would be handed over, with a little more for each row."""
        rows = self.written.items()
        return sum(
            len(key) + 16 + (len(row.value or b"") if row is not None else 0) for key, row in rows
        )

    def hand_over(self) -> None:
        """Write what is left in the end: each key once."""
        for key, row in self.written.items():
            if row is not None and row.value is not None:
                self._view.put(key, row.value, row.expires_at)
            elif self._view.get(key) is not None:
                self._view.delete(key)


class Watching:
    """The handler of one WATCH: note in `watched` how the rows of its keys are now."""

    __slots__ = ("_noted", "watched")

    def __init__(self, watched: dict[bytes, Seen]) -> None:
        self.watched = watched
        self._noted: dict[bytes, None] = {}

    def __call__(self, view: KeyView, args: list[bytes]) -> bytes:
        """OK"""
        for key in args[1:]:
            self.note(key, seen(view, key))
        return OK

    def note(self, key: bytes, row: Seen) -> None:
        """A key is watched from when it was named first."""
        if key not in self.watched:
            self.watched[key] = row
            self._noted[key] = None

    def forget(self) -> None:
        """It is refused, or to be executed again: what it saw may never have been."""
        for key in self._noted:
            self.watched.pop(key, None)
        self._noted.clear()

    def call(self, keys: list[bytes]) -> Call:
        """As a command of these keys."""
        return Call(_command("watch", self, ("readonly",)), [b"watch", *keys])


class Execution:
    """The handler of one EXEC: run the queued commands unless a watched row has changed."""

    __slots__ = ("queued", "run_plain", "watched")

    def __init__(
        self,
        queued: list[tuple[Command, list[bytes]]],
        watched: dict[bytes, Seen],
        run_plain: Callable[[Command, list[bytes]], bytes],
    ) -> None:
        self.queued = queued
        self.watched = watched
        self.run_plain = run_plain  # answers commands without keys

    def __call__(self, view: KeyView, args: list[bytes]) -> bytes:
        """The replies, or why there are none."""
        answers = self.answers(view)
        return answers if isinstance(answers, bytes) else array(answers)

    def answers(self, view: KeyView) -> list[bytes] | bytes:
        """The reply to each command, or one that says why none was executed."""
        if any(_has_changed(view, key, row) for key, row in self.watched.items()):
            return null_array(view.resp3)
        gathered = Gathered(view)
        answers: list[bytes] = []
        room = BYTES_MAX
        for command, words in self.queued:
            answer: bytes = (
                command.handler(gathered, words)
                if command.is_keyed
                else self.run_plain(command, words)
            )
            answers.append(answer)
            room -= len(answer)
            if room < 0:  # before all of them have been made: they may be many times as long
                return TOO_LARGE
        if gathered.byte_count() > room:
            return TOO_LARGE
        gathered.hand_over()
        return answers

    def call(self) -> Call:
        """As a command over the keys of all that is queued and watched."""
        flags = {flag for command, _ in self.queued for flag in command.flags}
        kept = tuple(sorted(flags & {"write", "denyoom"}))
        return Call(_command("exec", self, kept), [b"exec", *_keys(self.queued), *self.watched])


def _keys(queued: list[tuple[Command, list[bytes]]]) -> Iterable[bytes]:
    for command, args in queued:
        yield from command.keys(args)


def seen(view: KeyView, key: bytes) -> Seen:
    """How the key's row is, for who watches it."""
    row = view.get(key)
    return (0, view.position()) if row is None else (row.term, row.counter)


def _has_changed(view: KeyView, key: bytes, before: Seen) -> bool:
    """Also where it was absent, was written and is absent again."""
    row = view.get(key)
    if row is not None:
        return (row.term, row.counter) != before
    return before[0] > 0 or view.written_since(key, before[1])


def _command(name: str, handler: Callable[..., bytes], flags: tuple[str, ...]) -> Command:
    return Command(
        name.encode(), Scope.KEYED, handler, -2, "", "", "", flags,
        first_key=1, last_key=-1, step=1,
    )  # fmt: skip
