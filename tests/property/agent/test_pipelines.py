"""Commands sent in one go are answered, and leave behind, what they would one after the other."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.facts.keyspace import key_partition
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import ZONE, Agent

Words = tuple[bytes, ...]

KEYS = (b"{a}1", b"{a}2", b"{a}3", b"b", b"\0quorate\0")
_key = st.sampled_from(KEYS)
_value = st.sampled_from([b"1", b"text", bytes(40_000)])
COMMANDS = st.one_of(
    st.tuples(st.sampled_from([b"SET", b"SETNX", b"APPEND", b"GETSET"]), _key, _value),
    st.tuples(st.sampled_from([b"GET", b"DEL", b"INCR", b"GETDEL", b"PERSIST"]), _key),
    st.tuples(st.just(b"SET"), _key, _value, st.sampled_from([b"NX", b"XX", b"GET", b"wrong"])),
    st.tuples(st.just(b"EXPIRE"), _key, st.sampled_from([b"100", b"-1"])),
    st.tuples(st.just(b"SETEX"), _key, st.just(b"100"), _value),
    st.tuples(st.just(b"HSET"), _key, _value, _value),
    st.tuples(st.just(b"MSET"), st.just(KEYS[0]), _value, st.just(KEYS[1]), _value),
    st.tuples(st.just(b"RENAME"), st.just(KEYS[0]), st.just(KEYS[1])),
    st.sampled_from([(b"MULTI",), (b"EXEC",), (b"PING",), (b"DBSIZE",), (b"INCR",)]),
)


def _said(agent: Agent, client: KeptClient, commands: list[Words]) -> list[str]:
    said = client.send(*commands)
    for _ in range(3):
        agent.turn()
        said += client.told()
    return [str(each) for each in said]


def _rows(agent: Agent) -> dict[bytes, tuple[bytes | None, bool]]:
    """Values, and whether they expire: at other moments here and there."""
    rows = {}
    for key in KEYS:
        row = agent.replicas.copies[key_partition(key, ZONE.partitions)].get(key)
        rows[key] = (None, False) if row is None else (row.value, row.expires_at > 0)
    return rows


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(st.lists(COMMANDS, max_size=12), max_size=3))
def test_a_pipeline_is_what_its_commands_are_one_by_one(reads: list[list[Words]]) -> None:
    together, alone = Agent(0), Agent(0)
    one, other = together.writer(), alone.writer()

    for commands in reads:
        said = _said(together, one, commands)
        expected = [each for words in commands for each in _said(alone, other, [words])]

        assert said == expected
        assert _rows(together) == _rows(alone)
