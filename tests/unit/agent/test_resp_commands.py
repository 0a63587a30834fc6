"""Handlers write only what changes, touch a key once, and never read what they have written."""

from random import Random

import pytest

from quorate.protocol.storage import Row
from quorate_agent.resp.command import Scope, command_slot
from quorate_agent.resp.reading.glob import glob_matcher
from quorate_agent.resp.reading.integers import parse_integer
from quorate_agent.resp.tables.table import COMMANDS, DISPATCH, resolve
from quorate_differential.command_streams import random_command
from quorate_differential.dict_view import DictView

NOW_MS = 1_700_000_000_000


class StrictView(DictView):
    """A view that fails a handler which breaks a promise of `resp.view`."""

    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self.touched: set[bytes] = set()
        self.get = self._watched

    def _watched(self, key: bytes) -> Row | None:
        assert key not in self.touched, f"{key!r} read after it was written"
        return self._get(key)

    def put(self, key: bytes, value: bytes, expires_at_ms: int) -> None:
        self._touch(key)
        assert 0 <= expires_at_ms < 2**63
        super().put(key, value, expires_at_ms)

    def delete(self, key: bytes) -> None:
        assert self._get(key) is not None, f"{key!r} deleted but not live"
        self._touch(key)
        super().delete(key)

    def _touch(self, key: bytes) -> None:
        assert key not in self.touched, f"{key!r} written twice"
        self.touched.add(key)


def _run(view: DictView, *words: bytes) -> bytes:
    command = resolve(list(words))
    assert not isinstance(command, bytes)
    reply = command.handler(view, list(words))
    assert isinstance(reply, bytes)
    return reply


@pytest.mark.parametrize("seed", range(20))
def test_handlers_keep_the_promises_of_the_view(seed: int) -> None:
    random = Random(seed)
    view = StrictView()
    for _ in range(500):
        args = random_command(random)
        command = resolve(args)
        if isinstance(command, bytes) or command.scope is not Scope.KEYED:
            continue
        view.touched.clear()
        view.now_ms += random.randint(0, 20_000_000)
        before = dict(view.rows)

        reply = command.handler(view, args)

        if reply.startswith(b"-"):
            assert view.rows == before, f"{args} failed and yet wrote"
        if not command.is_write:
            assert view.rows == before, f"{args} is no write and yet wrote"


@pytest.mark.parametrize(
    "words",
    [
        b"GET text",
        b"SET text new NX",
        b"SET absent new XX",
        b"SETNX text new",
        b"DEL absent absent",
        b"INCRBY number 0",
        b"INCR text",
        b"PERSIST text",
        b"EXPIRE absent 10",
        b"EXPIRE absent -10",
        b"EXPIRE dated 100 NX",
        b"PEXPIRE dated 1000",
        b"GETEX dated PX 1000",
        b"GETEX text PERSIST",
        b"GETEX text",
        b"GETDEL absent",
        b"SET absent x EXAT 1",
        b"TTL dated",
    ],
)
def test_a_command_that_changes_nothing_writes_nothing(words: bytes) -> None:
    view = DictView(NOW_MS)
    view.put(b"text", b"old", 0)
    view.put(b"number", b"7", 0)
    view.put(b"dated", b"x", NOW_MS + 1000)
    view.changes = 0

    _run(view, *words.split())

    assert view.changes == 0


def test_appending_nothing_changes_only_a_key_that_is_not_there() -> None:
    view = DictView(NOW_MS)

    assert _run(view, b"APPEND", b"k", b"") == b":0\r\n"
    assert view.changes == 1
    assert _run(view, b"APPEND", b"k", b"") == b":0\r\n"
    assert view.changes == 1


def test_times_to_live_become_absolute() -> None:
    view = DictView(NOW_MS)

    for words, expected in (
        (b"SET k v EX 10", NOW_MS + 10_000),
        (b"SET k v PX 10", NOW_MS + 10),
        (b"SET k v EXAT 9000000000", 9_000_000_000_000),
        (b"SET k v PXAT 9000000000000", 9_000_000_000_000),
        (b"SET k w KEEPTTL", 9_000_000_000_000),
        (b"APPEND k x", 9_000_000_000_000),
        (b"GETEX k EX 7", NOW_MS + 7_000),
        (b"EXPIRE k 5", NOW_MS + 5_000),
        (b"PEXPIRE k 5", NOW_MS + 5),
        (b"SETEX k 3 v", NOW_MS + 3_000),
        (b"PSETEX k 3 5", NOW_MS + 3),
        (b"INCR k", NOW_MS + 3),
        (b"SET k v", 0),
    ):
        _run(view, *words.split())

        assert view.rows[b"k"].expires_at == expected, words


def test_a_moment_that_has_passed_deletes() -> None:
    for words in (
        b"SET k v EXAT 1",
        b"SET k v PXAT 1 GET",
        b"GETEX k PXAT 5",
        b"EXPIRE k -1",
        b"PEXPIRE k 0",
    ):
        view = DictView(NOW_MS)
        view.put(b"k", b"v", 0)

        _run(view, *words.split())

        assert view.rows == {}, words


def test_a_row_is_live_until_the_moment_it_expires_and_not_after() -> None:
    view = DictView(NOW_MS)
    view.put(b"k", b"v", NOW_MS)

    assert _run(view, b"GET", b"k") == b"$1\r\nv\r\n"
    view.now_ms += 1
    assert _run(view, b"GET", b"k") == b"$-1\r\n"


def test_what_is_left_of_a_time_to_live_is_rounded_to_the_second() -> None:
    for left_ms, seconds in ((0, 0), (499, 0), (500, 1), (1499, 1), (1500, 2)):
        view = DictView(NOW_MS)
        view.put(b"k", b"v", NOW_MS + left_ms)

        assert _run(view, b"TTL", b"k") == b":%d\r\n" % seconds
        assert _run(view, b"PTTL", b"k") == b":%d\r\n" % left_ms


@pytest.mark.parametrize(
    ("option", "sooner", "same", "later", "from_never"),
    [
        (b"GT", 0, 0, 1, 0),
        (b"LT", 1, 0, 0, 1),
        (b"NX", 0, 0, 0, 1),
        (b"XX", 1, 1, 1, 0),
    ],
)
def test_an_expiry_is_changed_as_its_option_allows(
    option: bytes, sooner: int, same: int, later: int, from_never: int
) -> None:
    for present_ms, wanted_ms, expected in (
        (1000, 999, sooner),
        (1000, 1000, same),
        (1000, 1001, later),
        (0, 1000, from_never),
    ):
        view = DictView(NOW_MS)
        view.put(b"k", b"v", NOW_MS + present_ms if present_ms else 0)

        assert _run(view, b"PEXPIRE", b"k", b"%d" % wanted_ms, option) == b":%d\r\n" % expected


def test_keys_and_slots_of_a_call_follow_its_table_entry() -> None:
    mset = [b"MSET", b"{a}1", b"x", b"{a}2", b"y"]

    assert list(COMMANDS[b"mset"].keys(mset)) == [b"{a}1", b"{a}2"]
    assert list(COMMANDS[b"get"].keys([b"GET", b"k"])) == [b"k"]
    assert list(COMMANDS[b"del"].keys([b"DEL", b"k", b"l"])) == [b"k", b"l"]
    assert list(COMMANDS[b"ping"].keys([b"PING"])) == []
    assert command_slot(COMMANDS[b"mset"], mset) == 15495
    assert command_slot(COMMANDS[b"del"], [b"DEL", b"a", b"b"]) == -1


def test_the_quick_table_knows_both_spellings_and_resolve_every_one() -> None:
    assert DISPATCH[b"GET"] is DISPATCH[b"get"] is COMMANDS[b"get"]
    assert resolve([b"gEt", b"k"]) is COMMANDS[b"get"]
    assert resolve([b"Client", b"iD"]) is COMMANDS[b"client"].subcommands[b"id"]


def test_commands_that_grow_the_data_are_those_that_redis_denies_when_full() -> None:
    assert sorted(name for name, command in COMMANDS.items() if command.grows) == sorted(
        b"set setnx setex psetex mset incr incrby incrbyfloat decr decrby append setrange copy"
        b" hset hmset hsetnx hincrby hincrbyfloat sadd lpush rpush lpushx rpushx lset".split()
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0),
        (b"-1", -1),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"9223372036854775808", None),
        (b"-9223372036854775809", None),
        (b"-0", None),
        (b"+1", None),
        (b"01", None),
        (b" 1", None),
        (b"1_0", None),
        (b"", None),
        (b"9" * 5000, None),
    ],
)
def test_an_integer_is_what_redis_takes_for_one(text: bytes, number: int | None) -> None:
    assert parse_integer(text) == number


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (b"*", [b"", b"a", b"\n"], []),
        (b"a*c", [b"ac", b"abc", b"abcc"], [b"a", b"xac", b"acx"]),
        (b"*a*b*", [b"ab", b"xaxbx"], [b"ba", b"a"]),
        (b"a?c", [b"abc", b"a\nc"], [b"ac", b"abbc"]),
        (b"[a-c]x", [b"ax", b"cx"], [b"dx", b"x"]),
        (b"[c-a]x", [b"bx"], [b"dx"]),
        (b"[^a]", [b"b", b"]"], [b"a", b""]),
        (b"[a\\]]", [b"a", b"]"], [b"\\"]),
        (b"[", [], [b"[", b"a"]),
        (b"[abc", [b"a", b"c"], [b"["]),
        (b"[^]", [b"x"], [b""]),
        (b"\\*", [b"*"], [b"a"]),
        (b"a.b", [b"a.b"], [b"axb"]),
        (b"a\\", [b"a\\"], [b"a"]),
        (b"{a}*", [b"{a}1"], [b"a"]),
    ],
)
def test_patterns_match_as_in_redis(
    pattern: bytes, matching: list[bytes], other: list[bytes]
) -> None:
    matches = glob_matcher(pattern)

    assert [name for name in matching if not matches(name)] == []
    assert [name for name in other if matches(name)] == []


def test_a_pattern_of_many_stars_does_not_take_for_ever() -> None:
    assert not glob_matcher(b"*a" * 40 + b"b")(b"a" * 2_000)
