"""Copies of real agents are read under a limit for each agent, while clients go on."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quorate.facts.read_limit import MIB
from quorate_cluster.cluster import Cluster
from quorate_cluster.meanwhile import meanwhile
from quorate_spark.copies import CopySeen
from quorate_spark.reading.read_columns import read_columns
from quorate_spark.reading.read_copies import read_copies
from quorate_spark.settings import Settings

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

VALUE = 32 * 1024
VALUES = 160
LONG = 5 * MIB


@pytest.fixture(scope="module")
def agent() -> Iterator[Cluster]:
    """One agent: everything that is read is read of it."""
    with Cluster(agents=1) as cluster:
        yield cluster


def copies_of(cluster: Cluster, zone: str) -> list[CopySeen]:
    addresses = [each.peer_address for each in cluster.agents.values()]
    owned = read_copies(zone, addresses, cluster.access, Settings()).owned
    return [copy for copies in owned.values() for copy in copies]


def test_two_readings_at_once_have_one_rate_between_them(agent: Cluster) -> None:
    agent.apply_zone("limited", partitions=2)
    client: Any = agent.client("limited")
    for number in range(VALUES):
        client.set(f"key-{number}", bytes(VALUE))
    copies = copies_of(agent, "limited")
    settings = Settings(max_mib_per_second_per_agent=2)

    def read(copy: CopySeen) -> list[int]:
        chunks = read_columns(copy, "limited", agent.access, settings)
        return [sum(len(row[4] or b"") for row in chunk.rows()) for chunk in chunks]

    def use(number: int) -> None:
        client.set("another", f"{number}")
        assert client.get("another") == f"{number}".encode()

    started = time.monotonic()
    with meanwhile(use), ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(read, copies))
    took_s = time.monotonic() - started

    sizes = [size for each in answers for size in each]
    assert all(answers)
    assert sum(sizes) >= VALUES * VALUE
    assert max(sizes) <= 2 * MIB // 10 + 2 * VALUE
    # All answers but the one that came last were paid for before it.
    assert took_s >= (sum(sizes) - max(sizes)) / (2 * MIB)


def test_clients_are_answered_while_a_reading_waits_longer_than_for_a_silent_agent(
    agent: Cluster,
) -> None:
    agent.apply_zone("long", partitions=1)
    client: Any = agent.client("long")
    client.set("a", bytes(LONG))
    client.set("b", "short")
    [copy] = copies_of(agent, "long")
    settings = Settings(answer_timeout_s=3.5, max_mib_per_second_per_agent=1)
    has_first, has_second = threading.Event(), threading.Event()

    def read() -> list[bytes]:
        found = []
        for chunk in read_columns(copy, "long", agent.access, settings):
            (has_second if has_first.is_set() else has_first).set()
            found += [row[0] for row in chunk.rows()]
        return found

    started = time.monotonic()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read)
        assert has_first.wait(30)
        for number in range(20):
            client.set("c", f"{number}")
            assert client.get("c") == f"{number}".encode()
        is_waiting = not has_second.is_set()
        found = reading.result(60)
    took_s = time.monotonic() - started

    assert is_waiting
    assert found == [b"a", b"b", b"c"]
    assert took_s >= LONG / MIB
