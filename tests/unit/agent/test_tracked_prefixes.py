"""The prefixes that all clients of a zone broadcast: found quickly for a key, and bounded."""

from random import Random
from typing import Any

import pytest

from quorate_agent.notices import prefixes as prefixes_module
from quorate_agent.notices.prefixes import Prefixes
from quorate_agent.notices.tracking import LOOK_MS
from quorate_agent.resp.commands.session.tracking import ZONE_PREFIXES_MAX
from quorate_differential.kept_client import KeptClient
from quorate_lone_agent.agent import Agent


@pytest.mark.parametrize("seed", range(5))
def test_the_prefixes_of_a_key_are_found_while_clients_come_and_go(seed: int) -> None:
    random, prefixes = Random(seed), Prefixes()
    names = [b"", *(bytes(random.choices(b"ab", k=random.randrange(1, 6))) for _ in range(30))]
    known: set[tuple[bytes, int]] = set()
    for _ in range(300):
        pair = random.choice(names), random.randrange(3)
        if pair in known:
            prefixes.remove(*pair)
        else:
            prefixes.add(*pair)
        known ^= {pair}
        key = bytes(random.choices(b"ab", k=random.randrange(7)))

        wanted = {prefix for prefix, _ in known if key.startswith(prefix)}
        assert sorted(prefixes.of(key)) == sorted(wanted)
        assert {*prefixes.pairs()} == known
        assert len(prefixes) == len({prefix for prefix, _ in known})


class _LookedAt(bytes):
    """A key that counts how often a part of it is taken."""

    count = 0

    def __getitem__(self, part: Any) -> Any:
        self.count += 1
        return super().__getitem__(part)

    def startswith(self, *asked: Any) -> bool:
        self.count += 1
        return super().startswith(*asked)


def test_a_written_key_is_compared_once_for_each_length_of_a_prefix(agent: Agent) -> None:
    for number in range(4):
        words = [word for n in range(50) for word in (b"PREFIX", b"p%02d%03d" % (number, n))]
        agent.client(b"BCAST", *words)
    client = agent.client(b"BCAST", b"PREFIX", b"k:")
    key = _LookedAt(b"k:a")
    watched = next(iter(agent.endpoint.overview.tracking._watched.values()))

    agent.endpoint.overview.tracking._wrote(watched, ((key, b"v", 0),))

    assert key.count <= 3
    agent.turn()
    assert client.told() == [[b"invalidate", [b"k:a"]]]


def _client_with(agent: Agent, name: bytes, count: int) -> tuple[KeptClient, Any]:
    words = [word for n in range(count) for word in (b"PREFIX", b"%b%05d" % (name, n))]
    client = agent.writer()
    client.ask(b"HELLO", b"3")
    (said,) = client.ask(b"CLIENT", b"TRACKING", b"ON", b"BCAST", *words)
    return client, said


def test_a_zone_has_a_bounded_number_of_prefixes(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefixes_module, "ZONE_PREFIXES_MAX", 20)
    first, said = _client_with(agent, b"a", 15)
    assert said == b"OK"
    refused, said = _client_with(agent, b"b", 6)
    assert f"more than {ZONE_PREFIXES_MAX} different prefixes" in str(said)
    assert refused.ask(b"CLIENT", b"GETREDIR") == [-1]
    assert _client_with(agent, b"c", 5)[1] == b"OK"
    again, said = _client_with(agent, b"a", 15)
    assert said == b"OK"  # none of these is a new one

    first.leave()
    again.leave()
    agent.tick(LOOK_MS)

    assert _client_with(agent, b"b", 6)[1] == b"OK"


def test_the_prefixes_of_a_zone_have_a_bounded_number_of_bytes(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefixes_module, "ZONE_PREFIXES_BYTES_MAX", 80)

    assert _client_with(agent, b"abc", 10)[1] == b"OK"
    assert "different prefixes" in str(_client_with(agent, b"def", 1)[1])
    assert _client_with(agent, b"", 0)[1] == b"OK"  # is told of every key
