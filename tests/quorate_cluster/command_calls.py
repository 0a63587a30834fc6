"""For every command a call that makes sense, and what it must be answered whoever is asked first.

Words are split at blanks; `@` stands for the call's own key and `@2` for another of the same slot.
Calls that belong together are separated by `;` and go over one connection.  The right answer is
what the very same calls get from the command handlers alone, in this process.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quorate_agent.resp.tables.table import COMMANDS
from quorate_differential.local_endpoint import LocalEndpoint

_KEYED = {
    # strings
    "get": ("SET @ v", "GET @"),
    "set": ("", "SET @ v NX"),
    "setnx": ("", "SETNX @ v"),
    "setex": ("", "SETEX @ 1000000 v"),
    "psetex": ("", "PSETEX @ 1000000000 v"),
    "getdel": ("SET @ v", "GETDEL @"),
    "getex": ("SET @ v", "GETEX @ EXAT 99999999999"),
    "mget": ("SET @ v", "MGET @ @2"),
    "mset": ("", "MSET @ 1 @2 2"),
    "incr": ("SET @ 5", "INCR @"),
    "incrby": ("SET @ 5", "INCRBY @ 7"),
    "incrbyfloat": ("SET @ 1.5", "INCRBYFLOAT @ 0.25"),
    "decr": ("SET @ 5", "DECR @"),
    "decrby": ("SET @ 5", "DECRBY @ 7"),
    "append": ("SET @ ab", "APPEND @ cd"),
    "strlen": ("SET @ abc", "STRLEN @"),
    "getrange": ("SET @ abcdef", "GETRANGE @ 1 3"),
    "substr": ("SET @ abcdef", "SUBSTR @ 1 3"),
    "setrange": ("SET @ abcdef", "SETRANGE @ 4 xyz"),
    # keys
    "del": ("SET @ v", "DEL @ @2"),
    "unlink": ("SET @ v", "UNLINK @ @2"),
    "exists": ("SET @ v", "EXISTS @ @ @2"),
    "touch": ("SET @ v", "TOUCH @ @2"),
    "type": ("RPUSH @ a", "TYPE @"),
    "copy": ("SET @ v", "COPY @ @2"),
    "rename": ("SET @ v", "RENAME @ @2"),
    "renamenx": ("SET @ v", "RENAMENX @ @2"),
    "expire": ("SET @ v", "EXPIRE @ 1000000 NX"),
    "pexpire": ("SET @ v", "PEXPIRE @ 1000000000 NX"),
    "expireat": ("SET @ v", "EXPIREAT @ 99999999999 NX"),
    "pexpireat": ("SET @ v", "PEXPIREAT @ 99999999999000 NX"),
    "ttl": ("SETEX @ 1000000 v", "TTL @"),
    "pttl": ("SETEX @ 1000000 v", "PTTL @"),
    "expiretime": ("SET @ v EXAT 99999999999", "EXPIRETIME @"),
    "pexpiretime": ("SET @ v EXAT 99999999999", "PEXPIRETIME @"),
    "persist": ("SETEX @ 1000000 v", "PERSIST @"),
    "object|encoding": ("SET @ 12", "OBJECT ENCODING @"),
    "object|freq": ("SET @ 12", "OBJECT FREQ @"),
    "object|idletime": ("", "OBJECT IDLETIME @"),
    "object|refcount": ("SET @ 12", "OBJECT REFCOUNT @"),
    "memory|usage": ("SET @ v", "MEMORY USAGE @"),
    # hashes
    "hset": ("HSET @ f 1", "HSET @ f 2 g 3"),
    "hmset": ("", "HMSET @ f 2 g 3"),
    "hsetnx": ("", "HSETNX @ f 1"),
    "hget": ("HSET @ f 1", "HGET @ f"),
    "hmget": ("HSET @ f 1", "HMGET @ f g"),
    "hgetall": ("HSET @ f 1 g 2", "HGETALL @"),
    "hkeys": ("HSET @ f 1 g 2", "HKEYS @"),
    "hvals": ("HSET @ f 1 g 2", "HVALS @"),
    "hlen": ("HSET @ f 1 g 2", "HLEN @"),
    "hexists": ("HSET @ f 1", "HEXISTS @ f"),
    "hstrlen": ("HSET @ f abc", "HSTRLEN @ f"),
    "hdel": ("HSET @ f 1 g 2", "HDEL @ f h"),
    "hincrby": ("HSET @ n 5", "HINCRBY @ n 2"),
    "hincrbyfloat": ("HSET @ n 5", "HINCRBYFLOAT @ n 0.5"),
    "hscan": ("HSET @ f 1 g 2", "HSCAN @ 0"),
    # sets
    "sadd": ("SADD @ a", "SADD @ a b c"),
    "srem": ("SADD @ a b", "SREM @ a c"),
    "sismember": ("SADD @ a", "SISMEMBER @ a"),
    "smismember": ("SADD @ a", "SMISMEMBER @ a b"),
    "smembers": ("SADD @ a", "SMEMBERS @"),
    "scard": ("SADD @ a b", "SCARD @"),
    "spop": ("SADD @ a", "SPOP @"),
    "srandmember": ("SADD @ a", "SRANDMEMBER @"),
    "sscan": ("SADD @ a", "SSCAN @ 0"),
    # lists
    "lpush": ("RPUSH @ a", "LPUSH @ b c"),
    "rpush": ("RPUSH @ a", "RPUSH @ b c"),
    "lpushx": ("RPUSH @ a", "LPUSHX @ b"),
    "rpushx": ("RPUSH @ a", "RPUSHX @ b"),
    "lpop": ("RPUSH @ a b c", "LPOP @"),
    "rpop": ("RPUSH @ a b c", "RPOP @"),
    "llen": ("RPUSH @ a b c", "LLEN @"),
    "lrange": ("RPUSH @ a b c", "LRANGE @ 0 -1"),
    "lindex": ("RPUSH @ a b c", "LINDEX @ 1"),
    "lset": ("RPUSH @ a b c", "LSET @ 1 x"),
    "lrem": ("RPUSH @ a b a a", "LREM @ 1 a"),
    "ltrim": ("RPUSH @ a b c d", "LTRIM @ 1 -2"),
    # transactions
    "exec": ("SET @ 5", "MULTI; INCR @; RPUSH @2 x; EXEC"),
    "watch": ("SET @ 5", "WATCH @; MULTI; INCR @; EXEC"),
    "unwatch": ("SET @ 5", "WATCH @; UNWATCH; MULTI; INCR @; EXEC"),
    "discard": ("SET @ 5", "MULTI; INCR @; DISCARD; GET @"),
}

OF_AGENTS = {
    "scan": "all keys, from the agents that the client knows",
    "randomkey": "some key",
    "dbsize": "what each agent has now: the sum over all agents",
    "keys": "what each agent has now: each key from one agent",
    "flushall": "what each agent has now: nothing is left when all agents were told",
    "flushdb": "the same",
    "wait": "the last write of the connection, forwarded or not",
    "cluster|slots": "who serves which slots, as it is now",
    "cluster|shards": "the same in other words",
    "cluster|nodes": "the same in other words",
    "cluster|countkeysinslot": "what each agent has now: the sum over all agents",
}
"""Commands that are about what agents have, and what a client with an old table is told."""

ANYWHERE = frozenset((
    "multi", "ping", "echo", "quit", "hello", "reset", "select", "readonly", "readwrite",
    "client|getname", "client|id", "client|info", "client|list", "client|maint_notifications",
    "client|setinfo", "client|setname", "client|tracking", "client|caching", "client|trackinginfo",
    "client|getredir", "pubsub|channels", "pubsub|numsub", "pubsub|numpat", "pubsub|shardchannels",
    "pubsub|shardnumsub", "subscribe", "unsubscribe", "psubscribe", "punsubscribe",
    "command", "command|count", "command|docs", "command|getkeys", "command|info", "command|list",
    "info", "config|get", "config|set", "time", "cluster|info", "cluster|keyslot", "cluster|myid",
    "slowlog|get", "slowlog|help", "slowlog|len", "slowlog|reset",
))  # fmt: skip
"""Commands about the connection or the one agent (MULTI alone does nothing)."""


class Call(NamedTuple):
    """A command with a key of its own: what is there before, and what is sent."""

    name: str
    tag: bytes
    before: list[list[bytes]]
    sent: list[list[bytes]]

    @property
    def key(self) -> bytes:
        """What leads it."""
        return b"{%b}" % self.tag

    @property
    def looks(self) -> list[list[bytes]]:
        """What tells all that the call may have changed."""
        return [
            [*words[:1], key, *words[1:]]
            for key in (self.key, self.key + b"2")
            for words in map(
                bytes.split,
                (b"TYPE", b"GET", b"HGETALL", b"SMEMBERS", b"LRANGE 0 -1", b"EXPIRETIME"),
            )
        ]

    def right_answers(self) -> tuple[list[bytes], list[bytes]]:
        """The replies to `sent`, and then to `looks`."""
        model = LocalEndpoint()
        session = model.connect()
        for words in self.before:
            model.answer(session, words)
        replies = [model.answer(session, words) for words in self.sent]
        return replies, [model.answer(session, words) for words in self.looks]


def keyed_names() -> Iterable[str]:
    """Names of the commands that have a call here."""
    return _KEYED


def all_names() -> set[str]:
    """Every command an agent knows; of those with subcommands these."""
    found = set()
    for name, command in COMMANDS.items():
        children = [child.name.decode() for child in command.subcommands.values()]
        # Called alone, some of them say what there is; those with keys are errors.
        if not children or command.takes(1):
            found.add(name.decode())
        found.update(children)
    return found


def call(name: str, tag: bytes) -> Call:
    """The command's call with this tag."""
    before, sent = (_words(text, b"{%b}" % tag) for text in _KEYED[name])
    return Call(name, tag, before, sent)


def _words(text: str, key: bytes) -> list[list[bytes]]:
    return [
        [key + word[1:] if word.startswith(b"@") else word for word in part.encode().split()]
        for part in text.split(";")
        if part
    ]


def agree(right: Sequence[bytes], said: Sequence[bytes]) -> bool:
    """Whether replies are the same, but for time that passes."""
    return len(right) == len(said) and all(map(_agree, right, said))


def _agree(right: bytes, said: bytes) -> bool:
    if right == said:
        return True
    if right[:1] != b":" or said[:1] != b":" or min(int(right[1:]), int(said[1:])) < 100_000:
        return False
    return abs(int(right[1:]) - int(said[1:])) < (120 if int(right[1:]) < 10**8 else 120_000)
