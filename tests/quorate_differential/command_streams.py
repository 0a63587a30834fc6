"""Random commands, well formed and malformed, from a seed; the same seed gives the same stream."""

from collections.abc import Callable, Sequence
from random import Random

from quorate_agent.resp.command import Command, Scope
from quorate_agent.resp.tables.table import COMMANDS
from quorate_differential.collection_streams import random_collection_command
from quorate_differential.number_texts import (
    FAR_INTEGERS,
    INTEGERS,
    NOT_INTEGERS,
    TEXTS,
    random_float,
)

# Few keys, so that commands meet; with hash tags of every odd shape, and bytes of every kind.
KEYS = (
    b"a", b"b", b"{a}1", b"{a}2", b"x{a}y", b"{a}{b}", b"{}{a}", b"{}a", b"{a", b"a}", b"{{a}}",
    b"", b"\x00\xff\r\n", b"key with spaces",
)  # fmt: skip
TAGGED = (b"a", b"{a}1", b"{a}2", b"x{a}y", b"{a}{b}")

PATTERNS = (b"*", b"a*", b"*{a}*", b"?", b"[a-z]", b"[^a]*", b"\\a", b"[")

# Far enough that no key expires between two looks at it, unless it does at once.
FAR_MS = 10_000_000

Maker = Callable[[Random], list[bytes]]


def random_command(random: Random) -> list[bytes]:
    """One command: mostly one that makes sense, sometimes one that somebody got wrong."""
    command = random.choice(MAKERS)(random)
    # A cursor is good only where it came from; WAIT for ever with too many copies never answers.
    if random.random() < 0.08 and command[0] not in (b"SCAN", b"WAIT"):
        command = _broken(random, command)
    if random.random() < 0.2:
        command[0] = bytes(
            char ^ 32 if chr(char).isalpha() and random.random() < 0.5 else char
            for char in command[0]
        )
    return command


def _broken(random: Random, command: list[bytes]) -> list[bytes]:
    match random.randrange(4):
        case 0:
            return command[: random.randint(1, len(command))]
        case 1:
            return [*command, *random.choices([*TEXTS, *FAR_INTEGERS, b"NX", b"EX"], k=2)]
        case 2:
            at = random.randrange(len(command))
            return [*command[:at], random.choice(NOT_INTEGERS), *command[at:]]
        case _:
            at = random.randrange(len(command))
            return [*command[:at], random.choice((*TEXTS, *FAR_INTEGERS)), *command[at + 1 :]]


def _key(random: Random) -> bytes:
    """One of three mostly, so that commands meet what others left."""
    return random.choice(TAGGED[:3] if random.random() < 0.7 else KEYS)


def _index(random: Random) -> bytes:
    return random.choice((b"%d" % random.randint(-9, 9), b"0", b"-1", random.choice(INTEGERS)))


def _keys(random: Random) -> list[bytes]:
    """Keys of one slot mostly."""
    population: Sequence[bytes] = TAGGED if random.random() < 0.8 else KEYS
    return random.choices(population, k=random.randint(1, 4))


def _value(random: Random) -> bytes:
    kind = random.random()
    if kind < 0.5:
        return random.choice(INTEGERS)
    if kind < 0.65:
        return random.choice(NOT_INTEGERS)
    if kind < 0.9:
        return random.choice(TEXTS)
    return random.randbytes(random.randint(1, 2000))


def _amount(random: Random) -> bytes:
    """A time to live, or a number to add."""
    kind = random.random()
    if kind < 0.5:
        return b"%d" % random.randint(FAR_MS, 2 * FAR_MS)
    return random.choice(FAR_INTEGERS if kind < 0.8 else NOT_INTEGERS)


def _set(random: Random) -> list[bytes]:
    options: list[bytes] = []
    if random.random() < 0.6:
        options += random.choice(((), (), (b"NX",), (b"xx",)))
        options += random.choice(((), (), (b"GET",)))
        options += random.choice(
            ((), (b"KEEPTTL",), (b"EX", _amount(random)), (b"px", b"99999999"))
        )
    else:
        for _ in range(random.choice((1, 2, 3))):
            option = random.choice(
                (b"NX", b"XX", b"GET", b"KEEPTTL", b"EX", b"PX", b"EXAT", b"PXAT", b"PERSIST")
            )
            options.append(option)
            if option in (b"EX", b"PX", b"EXAT", b"PXAT") and random.random() < 0.95:
                options.append(_moment(random) if option.endswith(b"AT") else _amount(random))
    return [b"SET", _key(random), _value(random), *options]


def _moment(random: Random) -> bytes:
    """Seconds or milliseconds since 1970: long ago or in some centuries, never about now."""
    return random.choice((b"1", b"1000", b"99999999999", b"99999999999999", _amount(random)))


def _getex(random: Random) -> list[bytes]:
    option = random.choice((b"EX", b"PX", b"EXAT", b"PXAT", b"PERSIST", b"", b"KEEPTTL"))
    words = [b"GETEX", _key(random)]
    if option:
        words.append(option)
    if option in (b"EX", b"PX"):
        words.append(_amount(random))
    if option in (b"EXAT", b"PXAT"):
        words.append(_moment(random))
    if random.random() < 0.1:
        words.append(random.choice((b"PERSIST", b"EX", b"PX")))
    return words


def _expire(random: Random) -> list[bytes]:
    options = random.choices(
        (b"NX", b"XX", b"GT", b"LT", b"lt", b"OLD", b"x\x00y"), k=random.choice((0, 0, 1, 1, 2))
    )
    if random.random() < 0.3:
        name = random.choice((b"EXPIREAT", b"PEXPIREAT"))
        return [name, _key(random), _moment(random), *options]
    name = random.choice((b"EXPIRE", b"PEXPIRE"))
    return [name, _key(random), _amount(random), *options]


def _of_key(name: bytes) -> Maker:
    return lambda random: [name, _key(random)]


def _of_keys(name: bytes) -> Maker:
    return lambda random: [name, *_keys(random)]


def _mset(random: Random) -> list[bytes]:
    return [b"MSET", *[word for key in _keys(random) for word in (key, _value(random))]]


def _fixed(*words: bytes) -> Maker:
    return lambda random: list(words)


def _scan(random: Random) -> list[bytes]:
    options: list[bytes] = []
    for _ in range(random.choice((0, 1, 1, 2))):
        name = random.choice((b"MATCH", b"TYPE", b"count", b"FOO"))
        argument = {
            b"MATCH": random.choice(PATTERNS),
            b"TYPE": random.choice((b"string", b"STRING", b"list", b"hash", b"set", b"x")),
            b"count": random.choice((b"0", b"-1", b"x", b"1000")),
            b"FOO": b"bar",
        }[name]
        options += (name, argument)
    cursor = random.choice((b"0", b"0", b"0", b"x", b"", b" 0", b"18446744073709551616"))
    # One page of everything: how cursors look is each server's own.
    return [b"SCAN", cursor, *options, b"COUNT", b"100000"]


def _unknown(random: Random) -> list[bytes]:
    name = random.choice((b"NOPE", b"get2", b"", b"x" * 200, b"a\r\nb", b"a\x00b", b"G\xffT"))
    return [name, *[_value(random) for _ in range(random.randint(0, 4))]]


def _subcommand(random: Random) -> list[bytes]:
    parent = random.choice((b"CLIENT", b"CLUSTER", b"COMMAND", b"CONFIG"))
    child = random.choice((b"NOPE", b"", b"x" * 200, b"a\r\nb", b"a\x00b"))
    return [parent, child, *[_value(random) for _ in range(random.randint(0, 2))]]


def _client_name(random: Random) -> list[bytes]:
    name = random.choice((b"me", b"", b"with space", b"line\n", b"~!", b"\x7f", b"\xe9"))
    return [b"CLIENT", random.choice((b"SETNAME", b"setname")), name]


def _command_info(random: Random) -> list[bytes]:
    names = [name for name, command in COMMANDS.items() if not command.has_subcommands]
    children = [child.name for command in COMMANDS.values() for child in _children(command)]
    population = [*names, *children, b"NOPE", b"GET", b"client|nope"]
    return [b"COMMAND", b"INFO", *random.choices(population, k=random.randint(1, 4))]


def _children(command: Command) -> list[Command]:
    newer = (b"setinfo", b"maint_notifications")  # than the Redis that we are compared with
    return [child for name, child in command.subcommands.items() if name not in newer]


def _get_keys(random: Random) -> list[bytes]:
    keyed = [name for name, command in COMMANDS.items() if command.scope is Scope.KEYED]
    name = random.choice((*keyed, b"PING", b"CLIENT", b"NOPE"))
    words = [_value(random) for _ in range(random.randint(0, 5))]
    return [b"COMMAND", b"GETKEYS", name, *words]


def _slot_of(random: Random) -> list[bytes]:
    return [b"CLUSTER", b"KEYSLOT", random.choice((_key(random), random.randbytes(8)))]


def _slot_count(random: Random) -> list[bytes]:
    slot = random.choice((b"15495", b"3300", b"0", b"16383", b"16384", b"-1", b"x"))
    return [b"CLUSTER", b"COUNTKEYSINSLOT", slot]


def _hello(random: Random) -> list[bytes]:
    words = [b"HELLO", random.choice((b"2", b"3", b"4", b"1", b"x", b"03"))]
    words += random.choice(
        (
            (),
            (),
            (b"SETNAME", b"me"),
            (b"SETNAME", b"a b"),
            (b"SETNAME",),
            (b"AUTH", b"default", b"x"),
            (b"AUTH", b"nobody", b"x"),
            (b"FOO",),
        )
    )
    return words if random.random() < 0.9 else [b"HELLO"]


def _select(random: Random) -> list[bytes]:
    return [b"SELECT", random.choice((b"0", b"1", b"-1", b"99", b"x", b"4294967296"))]


def _wait(random: Random) -> list[bytes]:
    copies = random.choice((b"0", b"-1", b"x"))
    return [b"WAIT", copies, random.choice((b"0", b"1", b"-1", b"x", b"99999999999999999999"))]


def _echo(random: Random) -> list[bytes]:
    return [random.choice((b"ECHO", b"PING")), _value(random)]


def _range_of(name: bytes) -> Maker:
    return lambda random: [name, _key(random), _index(random), _index(random)]


def _set_range(random: Random) -> list[bytes]:
    offset = random.choice((b"0", b"1", b"7", b"300", _index(random), b"67108864", b"x"))
    return [b"SETRANGE", _key(random), offset, random.choice(TEXTS)]


def _copy(random: Random) -> list[bytes]:
    options: list[bytes] = []
    for _ in range(random.choice((0, 0, 1, 2))):
        options += random.choice(
            ((b"REPLACE",), (b"replace",), (b"DB", b"0"), (b"DB", _amount(random)), (b"DB", b"7"))
        )
    return [b"COPY", *_two_keys(random), *options]


def _two_keys(random: Random) -> list[bytes]:
    return [random.choice(TAGGED if random.random() < 0.9 else KEYS) for _ in range(2)]


def _object(random: Random) -> list[bytes]:
    child = random.choice((b"ENCODING", b"FREQ", b"IDLETIME", b"REFCOUNT"))
    return [b"OBJECT", child, _key(random)]


def _memory_usage(random: Random) -> list[bytes]:
    options = random.choice(((), (), (b"SAMPLES", b"0"), (b"SAMPLES",), (b"samples", b"x")))
    return [b"MEMORY", b"USAGE", _key(random), *options]


MAKERS: tuple[Maker, ...] = (
    *(_set,) * 8,
    *(_of_key(b"GET"),) * 4,
    lambda random: [b"SETNX", _key(random), _value(random)],
    lambda random: [b"SETEX", _key(random), _amount(random), _value(random)],
    lambda random: [b"PSETEX", _key(random), _amount(random), _value(random)],
    *(_getex,) * 3,
    _of_key(b"GETDEL"),
    _of_keys(b"DEL"),
    _of_keys(b"UNLINK"),
    _of_keys(b"EXISTS"),
    _of_key(b"TYPE"),
    *(_of_keys(b"MGET"),) * 2,
    *(_mset,) * 2,
    *(_of_key(b"INCR"),) * 2,
    *(_of_key(b"DECR"),) * 2,
    *(lambda random: [b"INCRBY", _key(random), _amount(random)],) * 2,
    *(lambda random: [b"DECRBY", _key(random), _amount(random)],) * 2,
    lambda random: [b"APPEND", _key(random), _value(random)],
    _of_key(b"STRLEN"),
    *(_range_of(b"GETRANGE"),) * 2,
    _range_of(b"SUBSTR"),
    *(_set_range,) * 2,
    *(lambda random: [b"INCRBYFLOAT", _key(random), random_float(random)],) * 3,
    *(_copy,) * 2,
    *(lambda random: [random.choice((b"RENAME", b"RENAMENX")), *_two_keys(random)],) * 2,
    _of_keys(b"TOUCH"),
    *(_object,) * 2,
    _memory_usage,
    _of_key(b"EXPIRETIME"),
    _of_key(b"PEXPIRETIME"),
    *(_expire,) * 4,
    *(_of_key(b"TTL"),) * 3,
    *(_of_key(b"PTTL"),) * 3,
    *(_of_key(b"PERSIST"),) * 2,
    _unknown,
    _subcommand,
    _client_name,
    _fixed(b"CLIENT", b"GETNAME"),
    _command_info,
    _get_keys,
    _slot_of,
    _slot_count,
    _scan,
    _hello,
    _select,
    _wait,
    _echo,
    _fixed(b"PING"),
    _fixed(b"RESET"),
    _fixed(b"READONLY"),
    _fixed(b"READWRITE"),
    _fixed(b"TIME"),
    _fixed(b"CLIENT", b"ID"),
    lambda random: [
        random.choice((b"FLUSHALL", b"FLUSHDB")),
        *random.choice(((), (b"SYNC",), (b"async",), (b"x",))),
    ],
    *(lambda random: [b"KEYS", random.choice(PATTERNS)],) * 2,
    _fixed(b"DBSIZE"),
    *(lambda random: random_collection_command(random, _key(random)),) * 30,
)
