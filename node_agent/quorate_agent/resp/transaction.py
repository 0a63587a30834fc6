"""What MULTI gathers and EXEC runs: commands of one slot, as one update or none.

EXEC becomes one keyed command over the keys of all that were queued and of those watched, so that
it is redirected, parked, forwarded and acknowledged as any other.  Source: docs/protocol.md,
section 8.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from quorate.protocol.storage import Row
from quorate_agent.resp.command import Command, Scope
from quorate_agent.resp.replies import OK, array, error, null_array
from quorate_agent.resp.view import KeyView

QUEUED = b"+QUEUED\r\n"
BYTES_MAX = 64 * 1024 * 1024
"""Words of one transaction, and what it writes: an update fits into one frame between agents."""

TOO_LARGE = error(b"ERR transaction of more than %d bytes: use smaller ones" % BYTES_MAX)
NOT_INSIDE = error(b"ERR Command not allowed inside a transaction")

Seen = tuple[int, int] | None
"""(term, counter) of a live row when it was watched; None: there was none."""


class Call(NamedTuple):
    """A command made of others, and its words: the name, then its keys."""

    command: Command
    args: list[bytes]


class Transaction:
    """The commands of one connection since its MULTI."""

    __slots__ = ("_bytes", "commands", "refused")

    def __init__(self) -> None:
        self.commands: list[tuple[Command, list[bytes]]] = []
        self.refused = False  # a command was wrong: EXEC runs nothing
        self._bytes = 0

    def queue(self, command: Command, args: list[bytes]) -> bytes:
        """Keep a command for EXEC; the reply to it."""
        self._bytes += sum(map(len, args))
        if self._bytes > BYTES_MAX:
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

    __slots__ = ("_view", "get", "now_ms", "resp3", "written")

    def __init__(self, view: KeyView) -> None:
        self._view = view
        self.now_ms = view.now_ms
        self.resp3 = view.resp3
        self.written: dict[bytes, Row | None] = {}
        self.get: Callable[[bytes], Row | None] = self._get

    def _get(self, key: bytes) -> Row | None:
        if key not in self.written:
            return self._view.get(key)
        row = self.written[key]
        return None if row is not None and 0 < row.expires_at < self.now_ms else row

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        """Write, for those that follow."""
        self.written[key] = Row(0, 0, expires_at_ms, value)

    def delete(self, key: bytes) -> None:
        """Remove, for those that follow."""
        self.written[key] = None

    def byte_count(self) -> int:
        """Bytes of what would be handed over."""
        return sum(
            len(key) + len(row.value or b"") for key, row in self.written.items() if row is not None
        )

    def hand_over(self) -> None:
        """Write what is left in the end: each key once."""
        for key, row in self.written.items():
            if row is not None and row.value is not None:
                self._view.put(key, row.value, row.expires_at)
            elif self._view.get(key) is not None:
                self._view.delete(key)


def watch_call(keys: list[bytes], watched: dict[bytes, Seen]) -> Call:
    """WATCH: note in `watched` how the rows of `keys` are now."""

    def watch(view: KeyView, args: list[bytes]) -> bytes:
        for key in args[1:]:
            watched.setdefault(key, _seen(view.get(key)))
        return OK

    return Call(_command("watch", watch, ("readonly",)), [b"watch", *keys])


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
        if any(_seen(view.get(key)) != seen for key, seen in self.watched.items()):
            return null_array(view.resp3)
        gathered = Gathered(view)
        answers = [
            command.handler(gathered, words)
            if command.scope is Scope.KEYED
            else self.run_plain(command, words)
            for command, words in self.queued
        ]
        if gathered.byte_count() > BYTES_MAX:
            return TOO_LARGE
        gathered.hand_over()
        return array(answers)

    def call(self) -> Call:
        """As a command over the keys of all that is queued and watched."""
        flags = {flag for command, _ in self.queued for flag in command.flags}
        kept = tuple(sorted(flags & {"write", "denyoom"}))
        return Call(_command("exec", self, kept), [b"exec", *_keys(self.queued), *self.watched])


def _keys(queued: list[tuple[Command, list[bytes]]]) -> Iterable[bytes]:
    for command, args in queued:
        yield from command.keys(args)


def _seen(row: Row | None) -> Seen:
    return None if row is None else (row.term, row.counter)


def _command(name: str, handler: Callable[..., bytes], flags: tuple[str, ...]) -> Command:
    return Command(
        name.encode(), Scope.KEYED, handler, -2, "", "", "", flags,
        first_key=1, last_key=-1, step=1,
    )  # fmt: skip
