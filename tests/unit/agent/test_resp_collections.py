"""Hashes, sets and lists as values: what is written, what is not, and what is kept unpacked."""

import tracemalloc
from collections.abc import Callable

import pytest

from quorate_agent.resp import replies
from quorate_agent.resp.commands.types import sets
from quorate_agent.resp.replies import COLLECTION_TOO_LONG, DAMAGED, WRONGTYPE
from quorate_agent.resp.tables.table import resolve
from quorate_agent.resp.values import collection
from quorate_agent.resp.values.unpacked import WORTH_BYTES, Unpacked, object_bytes
from quorate_agent.resp.values.value import MARKER, Damaged, kind_of, pack_elements, unpack_elements
from quorate_differential.dict_view import DictView
from quorate_differential.local_endpoint import LocalEndpoint

NOW_MS = 1_700_000_000_000


def _run(view: DictView, *words: bytes) -> bytes:
    command = resolve(list(words))
    assert not isinstance(command, bytes)
    reply: bytes = command.handler(view, list(words))
    return reply


@pytest.fixture
def view() -> DictView:
    """A hash, a set, a list and a string, all of which expire."""
    view = DictView(NOW_MS)
    for words in (
        b"HSET hash f v number 7",
        b"SADD set m n",
        b"RPUSH list a b a",
        b"SET string 7",
    ):
        _run(view, *words.split())
        _run(view, b"PEXPIREAT", words.split()[1], b"%d" % (NOW_MS + 5000))
    view.changes = 0
    return view


@pytest.mark.parametrize(
    "words",
    [
        b"HSET hash f v",
        b"HSETNX hash f w",
        b"HDEL hash absent",
        b"HINCRBY hash number 0",
        b"HINCRBYFLOAT hash number 0",
        b"SADD set m n m",
        b"SREM set absent",
        b"SPOP set 0",
        b"LPUSHX absent x",
        b"LPOP list 0",
        b"LSET list 0 a",
        b"LREM list 0 absent",
        b"LTRIM list 0 -1",
        b"LTRIM absent 0 0",
        b"INCRBYFLOAT string 0",
        b"SETRANGE string 0 7",
        b"SETRANGE absent 7 ",
        b"COPY string list",
        b"COPY absent list REPLACE",
        b"RENAME list list",
        b"RENAMENX list set",
        b"HSET string f v",
        b"LPUSH hash x",
        b"SADD list x",
        b"SET hash x GET",
        b"SETNX hash x",
        b"EXPIREAT absent 1",
    ],
)
def test_a_command_that_changes_nothing_writes_nothing(view: DictView, words: bytes) -> None:
    before = dict(view.rows)

    _run(view, *words.split(b" "))

    assert view.changes == 0
    assert view.rows == before


@pytest.mark.parametrize(
    "words",
    [
        b"HSET hash f w",
        b"HSETNX hash g w",
        b"HDEL hash f",
        b"HINCRBY hash number 1",
        b"HINCRBYFLOAT hash number 1.5",
        b"SADD set o",
        b"SREM set m",
        b"SPOP set",
        b"LPUSH list x",
        b"RPUSHX list x",
        b"RPOP list",
        b"LSET list 0 x",
        b"LREM list 1 a",
        b"LTRIM list 1 -1",
        b"INCRBYFLOAT string 1",
        b"SETRANGE string 0 8",
        b"RENAME list moved",
        b"COPY set moved",
        b"COPY string set REPLACE",
    ],
)
def test_a_command_that_changes_a_value_keeps_its_time_to_live(
    view: DictView, words: bytes
) -> None:
    _run(view, *words.split())

    assert view.changes in (1, 2)
    assert {row.expires_at for row in view.rows.values()} == {NOW_MS + 5000}


@pytest.mark.parametrize(
    "words",
    [
        b"HDEL hash f number absent",
        b"SREM set m n",
        b"SPOP set 2",
        b"LPOP list 3",
        b"RPOP list 50",
        b"LTRIM list 5 9",
        b"LTRIM list 1 0",
    ],
)
def test_an_emptied_collection_is_gone(view: DictView, words: bytes) -> None:
    _run(view, *words.split())

    assert words.split()[1] not in view.rows


@pytest.mark.parametrize("key", [b"hash", b"set", b"list"])
def test_set_replaces_a_collection_and_its_time_to_live(view: DictView, key: bytes) -> None:
    assert _run(view, b"GET", key) == WRONGTYPE
    assert _run(view, b"MGET", key, b"string") == b"*2\r\n$-1\r\n$1\r\n7\r\n"
    assert _run(view, b"SET", key, b"text") == b"+OK\r\n"

    assert _run(view, b"TYPE", key) == b"+string\r\n"
    assert view.rows[key].expires_at == 0


def test_the_same_operations_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [
        b"HSET k b 1 a 2 c 3",
        b"HDEL k a",
        b"HSET k a 9",
        b"SADD s c a b",
        b"SREM s a",
        b"SADD s a d",
        b"RPUSH l x y",
        b"LPUSH l z",
    ]
    views = [DictView(NOW_MS), DictView(NOW_MS)]
    for at, view in enumerate(views):
        for words in calls:
            if at:
                monkeypatch.setattr(collection, "_unpacked", Unpacked())  # as after a restart
            _run(view, *words.split())

    assert views[0].rows == views[1].rows
    assert _run(views[0], b"HKEYS", b"k") == b"*3\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\na\r\n"


def test_what_spop_takes_is_what_is_gone(view: DictView) -> None:
    _run(view, b"SADD", b"many", *[b"%d" % number for number in range(100)])

    taken = set(_run(view, b"SPOP", b"many", b"30").split(b"\r\n")[2::2])
    left = set(_run(view, b"SMEMBERS", b"many").split(b"\r\n")[2::2])

    assert (len(taken), len(left)) == (30, 70)
    assert not taken & left


def test_srandmember_draws_as_many_as_it_is_told(view: DictView) -> None:
    for count, expected in ((b"1", 1), (b"9", 2), (b"-5", 5), (b"0", 0)):
        drawn = _run(view, b"SRANDMEMBER", b"set", count).split(b"\r\n")[2::2]

        assert len(drawn) == expected
        assert set(drawn) <= {b"m", b"n"}
    assert _run(view, b"SRANDMEMBER", b"set", b"-1000001").startswith(b"-ERR value is out of range")
    assert view.changes == 0


def test_srandmember_repeats_no_more_than_a_reply_may_have(
    view: DictView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sets, "REPLY_BYTES_MAX", 1000)
    _run(view, b"SADD", b"long", b"x" * 100)
    assert _run(view, b"SRANDMEMBER", b"long", b"-10").startswith(b"*10\r\n")
    assert b"256 MiB" in _run(view, b"SRANDMEMBER", b"long", b"-11")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (b"LRANGE long 0 -1", b"list"),
        (b"SMEMBERS long", b"set"),
        (b"HGETALL long", b"hash"),
        (b"HKEYS long", b"hash"),
        (b"HVALS long", b"hash"),
        (b"SRANDMEMBER long 100000", b"set"),
    ],
    ids=lambda value: value.decode(),
)
def test_a_reply_of_many_small_elements_takes_little_more_than_its_bytes(
    view: DictView, words: bytes, kind: bytes
) -> None:
    elements = [b"%06d" % number for number in range(20_000)]
    if kind == b"hash":
        _run(view, b"HSET", b"long", *[word for element in elements for word in (element,) * 2])
    else:
        _run(view, b"RPUSH" if kind == b"list" else b"SADD", b"long", *elements)
    _run(view, *words.split())  # its contents are kept unpacked from now on
    tracemalloc.start()
    reply = _run(view, *words.split())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(reply) > 12 * len(elements)
    assert peak < 4 * len(reply)


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 3000])
@pytest.mark.parametrize("last", [b"short", b"long" * 1000])
def test_replies_are_the_same_however_many_elements_are_encoded_at_a_time(
    count: int, last: bytes
) -> None:
    values = [*[b"%d" % number for number in range(count)], last]
    body = b"".join(b"$%d\r\n%b\r\n" % (len(value), value) for value in values)
    pairs = dict(zip(values, reversed(values), strict=True))
    both = b"".join(map(replies.bulk, [word for pair in pairs.items() for word in pair]))

    assert replies.bulks(values) == b"*%d\r\n%b" % (len(values), body)
    assert replies.bulk_set(values, resp3=True) == b"~%d\r\n%b" % (len(values), body)
    assert replies.bulk_set(values, resp3=False) == b"*%d\r\n%b" % (len(values), body)
    assert replies.bulk_map(pairs, resp3=True) == b"%%%d\r\n%b" % (len(pairs), both)
    assert replies.bulk_map(pairs, resp3=False) == b"*%d\r\n%b" % (2 * len(pairs), both)


def test_a_collection_has_a_bound_and_stays_as_it_was_at_it(view: DictView) -> None:
    before = dict(view.rows)
    long = b"x" * (33 * 1024 * 1024)

    assert _run(view, b"HSET", b"big", b"a", long) == b":1\r\n"
    assert _run(view, b"HSET", b"big", b"b", long) == COLLECTION_TOO_LONG
    assert _run(view, b"HKEYS", b"big") == b"*1\r\n$1\r\na\r\n"
    assert _run(view, b"RPUSH", b"list", long, long) == COLLECTION_TOO_LONG
    assert view.rows[b"list"] == before[b"list"]


@pytest.mark.parametrize(
    "value",
    [MARKER, MARKER + b"?x", MARKER + b"h", MARKER + b"h\xc1", MARKER + b"h\x93\x01\x02\x03"],
)
def test_bytes_that_no_command_wrote_are_an_error_and_nothing_else(value: bytes) -> None:
    view = DictView(NOW_MS)
    view.put(b"k", value, 0)
    for words in (
        b"GET k",
        b"TYPE k",
        b"HGET k f",
        b"HSET k f v",
        b"SADD k m",
        b"LPUSH k x",
        b"APPEND k x",
        b"INCR k",
        b"OBJECT ENCODING k",
    ):
        reply = _run(view, *words.split())

        assert reply in (DAMAGED, WRONGTYPE, b"+hash\r\n"), words
    assert view.rows[b"k"].value == value
    assert _run(view, b"SET", b"k", b"v") == b"+OK\r\n"


def test_damaged_bytes_are_named_so() -> None:
    with pytest.raises(Damaged, match="no kind of value"):
        kind_of(MARKER + b"?")
    with pytest.raises(Damaged):
        unpack_elements(MARKER + b"l\x92\xc4")


@pytest.mark.parametrize(
    ("words", "encoding"),
    [
        (b"SET k 12", b"int"),
        (b"SET k 012", b"embstr"),
        (b"SET k " + b"x" * 45, b"raw"),
        (b"HSET k f " + b"v" * 64, b"listpack"),
        (b"HSET k f " + b"v" * 65, b"hashtable"),
        (b"SADD k 1 2", b"intset"),
        (b"SADD k 1 x", b"hashtable"),
        (b"RPUSH k 1", b"quicklist"),
    ],
)
def test_an_encoding_is_what_redis_would_choose(words: bytes, encoding: bytes) -> None:
    view = DictView(NOW_MS)
    _run(view, *words.split())

    reply = _run(view, b"OBJECT", b"ENCODING", b"k")

    assert reply == b"$%d\r\n%b\r\n" % (len(encoding), encoding)


def test_memory_usage_grows_with_key_and_value(view: DictView) -> None:
    usages = []
    for key, value in ((b"k", b"v"), (b"k" * 11, b"v"), (b"k", b"v" * 101)):
        _run(view, b"SET", key, value)
        usages.append(int(_run(view, b"MEMORY", b"USAGE", key)[1:]))

    assert usages[1] - usages[0] == 10
    assert usages[2] - usages[0] == 100


def test_a_random_key_is_one_that_is_there_wherever_it_lies() -> None:
    endpoint = LocalEndpoint()
    session = endpoint.connect()
    assert endpoint.answer(session, [b"RANDOMKEY"]) == b"$-1\r\n"
    keys = {b"key-%d" % number for number in range(40)}
    for key in keys:
        endpoint.answer(session, [b"SET", key, b"v"])

    drawn = {endpoint.answer(session, [b"RANDOMKEY"]).split(b"\r\n")[1] for _ in range(1_000)}

    assert drawn <= keys
    assert len(drawn) > len(keys) // 2


class TestUnpacked:
    """Contents that are kept are those of the very bytes."""

    def _count(self) -> tuple[list[bytes], Callable[[bytes], bytes]]:
        unpacked: list[bytes] = []

        def unpack(value: bytes) -> bytes:
            unpacked.append(value)
            return value[:1]

        return unpacked, unpack

    def test_equal_bytes_are_unpacked_once_and_others_anew(self) -> None:
        calls, unpack = self._count()
        kept = Unpacked()
        first, second = b"a" * WORTH_BYTES, b"b" * WORTH_BYTES
        for value in (first, bytes(bytearray(first)), second, second, first):
            assert kept.items(b"k", value, unpack) == value[:1]

        assert calls == [first, second, first]

    def test_short_ones_are_not_kept(self) -> None:
        calls, unpack = self._count()
        kept = Unpacked()
        for _ in range(2):
            kept.items(b"k", b"short", unpack)

        assert len(calls) == 2

    def test_those_used_last_are_kept_as_long_as_there_is_room(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Each is kept with its key and twice its bytes, and what they unpack to is one element.
        of_one = 1 + 2 * WORTH_BYTES + object_bytes(1, is_list=False)
        monkeypatch.setattr("quorate_agent.resp.values.unpacked.KEPT_BYTES_MAX", 3 * of_one)
        calls, unpack = self._count()
        kept = Unpacked()
        values = {name: name * WORTH_BYTES for name in (b"a", b"b", b"c", b"d")}
        for name in (b"a", b"b", b"c", b"a", b"d", b"a", b"c", b"d"):
            kept.items(name, values[name], unpack)
        assert calls == [values[name] for name in (b"a", b"b", b"c", b"d")]

        kept.items(b"b", values[b"b"], unpack)
        kept.items(b"huge", b"h" * 2 * of_one, unpack)
        kept.items(b"d", values[b"d"], unpack)

        assert [value[:1] for value in calls[4:]] == [b"b", b"h"]


@pytest.mark.parametrize(
    "words",
    [b"LPOP k", b"RPOP k", b"LPOP k 2", b"LLEN k", b"LRANGE k 0 -1", b"LSET k 0 v"],
)
def test_an_empty_list_that_is_stored_is_as_one_that_is_absent(words: bytes) -> None:
    view = DictView(NOW_MS)
    view.put(b"k", pack_elements([]), 0)

    assert _run(view, *words.split()) == _run(DictView(NOW_MS), *words.split())
