"""Describes a command: how it is called, how many words it takes, which of them are keys."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from quorate.facts.keyspace import key_slot

ARGUMENTS_MAX = 1024 * 1024

WORD_BYTES = 50
"""Memory that each word of a command takes beside its text: the object and its place in the
list."""

Handler = Callable[[Any, list[bytes]], Any]
"""Arguments and result depend on the command's scope."""


class Scope(enum.IntEnum):
    """How the endpoint calls the handler."""

    KEYED = 1  # handler(KeyView, args) -> bytes
    CONNECTION = 2  # handler(Session, args) -> bytes
    SCAN = 3  # handler(Session, args) -> bytes, Call or Stepped; reads rows
    WAIT = 4  # handler(Session, args) -> WaitRequest, or bytes: an error
    MADE = 6  # handler(Session, args) -> Call of a keyed command made for it, or bytes
    FLUSH = 5  # handler(Session, args) -> None: delete every key, or bytes: an error
    LIST = 7  # handler(Session, args) -> KeysRequest, or bytes: an error


READ, WRITE, TRANSACTION, KEYSPACE, CONNECTION, SERVER, UNKNOWN = FAMILIES = (
    "read", "write", "transaction", "keyspace", "connection", "server", "unknown",
)  # fmt: skip
"""Families by which commands are counted: keyspace is for those that look at many keys, unknown for
words that are no command."""

_OF_TRANSACTIONS = (b"multi", b"exec", b"discard", b"watch", b"unwatch")
_OF_MANY_KEYS = (b"scan", b"keys", b"randomkey", b"dbsize")
ABOUT_KEYS = (b"randomkey", b"dbsize")
"""Commands about the keys of this agent that need the leases of all its partitions.

KEYS and SCAN look at the leases themselves."""
_OF_CONNECTIONS = ("connection", "pubsub")

_NOT_QUEUED = (b"multi", b"exec", b"discard", b"watch", b"quit", b"reset")

# The order in which Redis lists the categories of a command.
_CATEGORY_ORDER = (
    "@keyspace", "@read", "@write", "@set", "@list", "@hash", "@string", "@pubsub", "@admin",
    "@fast", "@slow", "@dangerous", "@connection", "@transaction",
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """One command or subcommand.  `arity` counts the name; negative: at least so many words."""

    name: bytes  # lower case; parent|child
    scope: Scope
    handler: Handler
    arity: int
    summary: str
    since: str  # the version of Redis that brought it
    group: str
    flags: tuple[str, ...] = ()
    first_key: int = 0
    last_key: int = 0  # negative: from the end
    step: int = 0
    # Flags of the keys: one entry for all, or one for each.
    key_flags: tuple[tuple[str, ...], ...] = ()
    categories: tuple[str, ...] = ()
    tips: tuple[str, ...] = ()
    # Returns the replies for several values, if the command only reads the values of single keys.
    each: Callable[[list[bytes | None], bool], bytes] | None = None
    # Returns the values to store for several words, if the command with `usual_words` stores its
    # third word without looking at the row, and answers OK.
    puts_each: Callable[[Sequence[bytes]], Iterable[bytes]] | None = None
    subcommands: Mapping[bytes, "Command"] = field(default_factory=dict)
    # The words of the commands that EXEC executes: they are not among its own.
    queued: Sequence[list[bytes]] = field(default=(), compare=False)
    # Derived facts that the endpoint needs at every command.
    is_keyed: bool = field(init=False)
    usual_words: int = field(init=False)  # with so many words the call is valid; 0: look closer
    arguments_min: int = field(init=False)
    arguments_max: int = field(init=False)
    has_subcommands: bool = field(init=False)
    single_key: bool = field(init=False)  # keyed, and the one key is args[1]
    is_write: bool = field(init=False)
    grows: bool = field(init=False)  # refused while there is no room
    joins: bool = field(init=False)  # writes one key only: may share an update with others
    rewrites: bool = field(init=False)  # may write again the value that its first key has
    in_transactions: bool = field(init=False)
    # After MULTI these run instead of being queued.
    ends_queueing: bool = field(init=False)
    family: str = field(init=False)  # one of FAMILIES

    def __post_init__(self) -> None:
        settle = object.__setattr__
        settle(self, "is_keyed", self.scope is Scope.KEYED)
        settle(self, "arguments_min", abs(self.arity))
        settle(self, "arguments_max", self.arity if self.arity > 0 else ARGUMENTS_MAX)
        settle(self, "has_subcommands", bool(self.subcommands))
        settle(self, "usual_words", 0 if self.subcommands else abs(self.arity))
        single_key = self.is_keyed and (self.first_key, self.last_key) == (1, 1)
        settle(self, "single_key", single_key)
        settle(self, "is_write", "write" in self.flags)
        settle(self, "grows", "denyoom" in self.flags)
        settle(self, "joins", self.single_key and self.is_write)
        read_first = bool(self.key_flags) and not {"RO", "RW"}.isdisjoint(self.key_flags[0])
        is_other = self.puts_each is not None or self.name == b"getdel"
        settle(self, "rewrites", self.is_write and read_first and not is_other)
        queued = (Scope.KEYED, Scope.CONNECTION, Scope.SCAN)
        settle(self, "in_transactions", self.scope in queued and "pubsub" not in self.flags)
        settle(self, "ends_queueing", self.name in _NOT_QUEUED)
        settle(self, "family", self._family())

    def _family(self) -> str:
        if self.name in _OF_TRANSACTIONS:
            return TRANSACTION
        if self.is_write:
            return WRITE
        if self.is_keyed:
            return READ
        if self.name in _OF_MANY_KEYS:
            return KEYSPACE
        return CONNECTION if self.group in _OF_CONNECTIONS else SERVER

    def may_rewrite(self, words: int) -> bool:
        """Return whether with so many words it may write the value of its first key again."""
        return self.rewrites and (words > 2 or self.name != b"getex")

    def takes(self, words: int) -> bool:
        """Return whether the command may have so many words, its name included."""
        return self.arguments_min <= words <= self.arguments_max

    def keys(self, args: Sequence[bytes]) -> Sequence[bytes]:
        """Return the keys among `args`."""
        if not self.first_key:
            return ()
        end = self.last_key + 1 if self.last_key > 0 else len(args) + self.last_key + 1
        return args[self.first_key : end : self.step]

    @cached_property
    def all_categories(self) -> tuple[str, ...]:
        """Declared categories and those that follow from the flags, in Redis' order."""
        found = {*self.categories, "@fast" if "fast" in self.flags else "@slow"}
        if "write" in self.flags:
            found.add("@write")
        if "readonly" in self.flags:
            found.add("@read")
        if "admin" in self.flags:
            found |= {"@admin", "@dangerous"}
        return tuple(category for category in _CATEGORY_ORDER if category in found)


def command_slot(command: Command, args: Sequence[bytes]) -> int:
    """Return the slot of the command's keys; -1 if they are not all in one."""
    keys = command.keys(args)
    slot = key_slot(keys[0])
    for key in keys[1:]:
        if key_slot(key) != slot:
            return -1
    return slot
