"""Every command from clients whose table of primaries is one change behind, or two.

Each must be answered as if nothing had happened, and must happen once.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, cycle
from typing import Any

import hiredis
import pytest
from redis.cluster import RedisCluster

from quorate.facts.keyspace import key_partition, key_slot
from quorate.facts.partition_row import PartitionRow
from quorate_cluster.agreement import stored_rows
from quorate_cluster.changes import grow
from quorate_cluster.cluster import Cluster
from quorate_cluster.command_calls import (
    ANYWHERE,
    OF_AGENTS,
    Call,
    agree,
    all_names,
    call,
    keyed_names,
)
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.stale_clients import (
    FollowingClient,
    wrong_at_stock_client,
    wrong_when_followed,
)
from quorate_cluster.waiting import wait_until
from quorate_differential.raw_replies import RawConnection
from quorate_differential.scan_replies import read_scan

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

PARTITIONS = 8
WORKERS = 3
"""Clients of each kind that share the commands: all ask at once, right after the change."""
STABLE = frozenset(b"stable-%d" % number for number in range(200))

Rows = dict[int, PartitionRow]


# -- the changes ----------------------------------------------------------------------------------


def _newest(cluster: Cluster) -> str:
    return list(cluster.agents)[-1]


def _begin_to_join(cluster: Cluster) -> None:
    """Until the newcomer is primary of something."""
    cluster.add_agent()
    newest = _newest(cluster)
    wait_until(lambda: newest in cluster.zone("z")["status"]["ports"], "clients' port")
    wait_until(lambda: newest in _primaries(_rows(cluster)).values(), "a primary that moved")


def _join_and_forget(cluster: Cluster) -> None:
    """Until agents that lost a primary to the newcomer have neither its data nor forward to it."""
    before = _rows(cluster)
    grow(cluster)
    for partition, row in before.items():
        if row.primary != _rows(cluster)[partition].primary:
            assert row.primary is not None
            key = next(key for key in STABLE if key_partition(key, PARTITIONS) == partition)
            with RawConnection("127.0.0.1", cluster.port("z", row.primary.node)) as connection:
                wait_until(partial(_redirects, connection, key), "redirection")


def _redirects(connection: RawConnection, key: bytes) -> bool:
    return connection.ask([b"GET", key]).startswith(b"-MOVED")


def _kill_first(cluster: Cluster) -> None:
    cluster.agents["agent-1"].kill()
    cluster.wait_left("agent-1")
    cluster.wait_available("z")


def _return(cluster: Cluster) -> None:
    """Until the agent that was away is primary again of what it was a backup of."""
    cluster.agents["agent-1"].start()
    wait_until(lambda: "agent-1" in _primaries(_rows(cluster)).values(), "its first primary")


def _kill_newest(cluster: Cluster) -> None:
    cluster.agents[_newest(cluster)].kill()


def _rows(cluster: Cluster) -> Rows:
    return stored_rows(cluster.folder, cluster.zone("z")["metadata"]["uid"])


def _primaries(rows: Rows) -> dict[int, str]:
    return {
        partition: row.primary.node for partition, row in rows.items() if row.primary is not None
    }


CHANGES = {
    "primary moves": (grow, _begin_to_join),
    "primary dies": (grow, _kill_newest),
    "backup becomes primary": (_kill_first, _return),
    "source becomes non-owner": (grow, _join_and_forget),
}
"""The change before, and the change."""


# -- clients with old tables ----------------------------------------------------------------------


class _Behind:
    """Clients that read the table as it is now, and a call of every command in every partition."""

    def __init__(self, cluster: Cluster, tags: dict[int, Iterator[bytes]]) -> None:
        self.primaries = _primaries(_rows(cluster))
        self.ports = {name: cluster.port("z", name) for name in set(self.primaries.values())}
        # In RESP2 it is not told of hand-overs; each slot is asked for once, so each answer is
        # news to it.
        self.stock: list[RedisCluster] = [
            cluster.client("z", protocol=2, reinitialize_steps=0) for _ in range(WORKERS)
        ]
        self.following = [FollowingClient(list(self.ports.values())) for _ in range(WORKERS)]
        self._calls = {
            kind: {
                name: {partition: call(name, next(tags[partition])) for partition in tags}
                for name in keyed_names()
            }
            for kind in ("stock", "following")
        }
        self.called: list[Call] = []

    def before(self) -> list[list[bytes]]:
        """What has to be there before any of the calls."""
        return [
            words
            for names in self._calls.values()
            for partitions in names.values()
            for each in partitions.values()
            for words in each.before
        ]

    def roads(self, affected: list[int]) -> list[Callable[[], list[str]]]:
        """Each for a thread of its own: every command by each kind of client, in partitions that
        changed; they tell what was answered wrong."""
        chosen: dict[str, list[Call]] = {}
        for kind, names in self._calls.items():
            at = cycle(affected)
            chosen[kind] = [partitions[next(at)] for partitions in names.values()]
            self.called += chosen[kind]
        roads: list[Callable[[], list[str]]] = []
        for number in range(WORKERS):
            stock = chosen["stock"][number::WORKERS]
            followed = [(each, self._port(each)) for each in chosen["following"][number::WORKERS]]
            roads.append(lambda n=number, c=stock: wrong_at_stock_client(self.stock[n], c))
            roads.append(lambda n=number, c=followed: wrong_when_followed(self.following[n], c))
        return roads

    def _port(self, each: Call) -> int:
        return self.ports[self.primaries[key_partition(each.key, PARTITIONS)]]

    def close(self) -> None:
        for client in self.following:
            client.close()


def _tags() -> dict[int, Iterator[bytes]]:
    """For each partition hash tags of ever other slots."""
    used: set[int] = set()

    def of(partition: int) -> Iterator[bytes]:
        for number in count():
            tag = b"t%d" % number
            if key_partition(tag, PARTITIONS) == partition and key_slot(tag) not in used:
                used.add(key_slot(tag))
                yield tag

    return {partition: of(partition) for partition in range(PARTITIONS)}


def test_no_command_is_forgotten() -> None:
    keyed, of_agents = set(keyed_names()), set(OF_AGENTS)

    assert keyed | of_agents | ANYWHERE == all_names()
    assert len(keyed) + len(of_agents) + len(ANYWHERE) == len(all_names())


@pytest.mark.parametrize("change", CHANGES)
def test_every_command_of_clients_with_old_tables_is_answered_right_and_happens_once(
    start_cluster: StartCluster, measured: Measured, change: str
) -> None:
    earlier, later = CHANGES[change]
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS)
    tags = _tags()
    two = _Behind(cluster, tags)
    earlier(cluster)
    one = _Behind(cluster, tags)
    with cluster.client("z").pipeline() as pipe:
        for words in [*two.before(), *one.before(), *([b"SET", key, b"v"] for key in STABLE)]:
            pipe.execute_command(words[0].decode(), *words[1:])
        pipe.execute()

    later(cluster)
    now = _primaries(_rows(cluster))
    if change == "primary dies":
        now = {p: "" if node == _newest(cluster) else node for p, node in now.items()}
    changed = [p for p in now if one.primaries[p] != now[p]]
    changed_two = [p for p in now if two.primaries[p] != now[p]]
    both = [p for p in changed if two.primaries[p] != one.primaries[p]] or changed_two
    assert changed
    assert both
    if change == "source becomes non-owner":
        changed = [p for p in changed if one.primaries[p] not in _rows(cluster)[p].owners]
        assert changed
    roads = one.roads(changed) + two.roads(both)
    began = time.monotonic()
    with ThreadPoolExecutor(len(roads)) as threads:
        wrong = [each for found in threads.map(lambda road: road(), roads) for each in found]
    redirections = sum(client.redirections for client in one.following + two.following)
    measured(
        f"old tables, {change}",
        f"{len(one.called + two.called)} commands in {time.monotonic() - began:.1f} s,"
        f" {redirections} redirections followed by hand",
    )

    assert not wrong, "\n".join(wrong)
    wrong = _found_otherwise(cluster, one.called + two.called)
    assert not wrong, "\n".join(wrong)
    for behind in (one, two):
        _check_what_agents_say(cluster, behind, change == "primary dies")
        behind.close()
    _check_sums(cluster)


def _found_otherwise(cluster: Cluster, calls: list[Call]) -> list[str]:
    """Where what is there now is not what the calls leave behind."""
    ports = _alive_ports(cluster)
    client = FollowingClient(list(ports.values()))
    wrong: list[str] = []
    primaries = _primaries(_rows(cluster))
    for each in calls:
        _, right = each.right_answers()
        said = client.run(ports[primaries[key_partition(each.key, PARTITIONS)]], each.looks)
        if not agree(right, said):
            wrong.append(f"{each.sent} left {said!r} instead of {right!r}")
    client.close()
    return wrong


def _alive_ports(cluster: Cluster) -> dict[str, int]:
    cluster.wait_available("z")
    alive = [name for name, agent in cluster.agents.items() if agent.is_alive()]
    return {name: cluster.port("z", name) for name in alive}


# -- commands that are about what agents have -----------------------------------------------------


def _check_what_agents_say(cluster: Cluster, behind: _Behind, lost: bool) -> None:
    """What who knows only the agents of an old table is told by them."""
    alive = _alive_ports(cluster)
    rows = _rows(cluster)
    client = FollowingClient(list(behind.ports.values()))
    found: set[bytes] = set()
    for name, port in behind.ports.items():
        if name not in alive:
            continue
        cursor = b"0"
        while True:
            said = client.run(port, [[b"SCAN", cursor, b"COUNT", b"100"]])[0]
            cursor, keys = read_scan(said)
            found.update(keys)
            if cursor == b"0":
                break
        assert not client.run(port, [[b"RANDOMKEY"]])[0].startswith(b"-")
        key = b"waited-%d" % port
        written, copies = client.run(port, [[b"SET", key, b"v"], [b"WAIT", b"1", b"10000"]])
        assert written == b"+OK\r\n"
        assert int(copies[1:]) >= 1
        assert _table(client, port) == _ports(rows, alive)
        for about in (b"SHARDS", b"NODES"):
            said = client.run(port, [[b"CLUSTER", about]])[0]
            assert all(b"%d" % each in said for each in _ports(rows, alive).values())
    assert lost or found >= STABLE  # the scan of an agent that ended begins anew
    client.close()
    for stock in behind.stock:
        assert set(stock.scan_iter(count=100)) >= STABLE
        assert stock.randomkey() is not None


def _table(client: FollowingClient, port: int) -> dict[int, int]:
    """Port by partition, as CLUSTER SLOTS says."""
    reader = hiredis.Reader()
    reader.feed(client.run(port, [[b"CLUSTER", b"SLOTS"]])[0])
    ranges = reader.gets()
    assert isinstance(ranges, list)
    found: dict[int, int] = {}
    width = 16384 // PARTITIONS
    for first, last, primary, *_ in ranges:
        found.update(dict.fromkeys(range(first // width, last // width + 1), primary[1]))
    return found


def _ports(rows: Rows, alive: dict[str, int]) -> dict[int, int]:
    return {partition: alive.get(node, 0) for partition, node in _primaries(rows).items()}


def _check_sums(cluster: Cluster) -> None:
    """What is said of its own keys by each agent that serves now."""
    ports = _alive_ports(cluster)
    keys = set(cluster.client("z").scan_iter(count=1000))
    of_slot: dict[int, int] = defaultdict(int)
    for key in keys:
        of_slot[key_slot(key)] += 1
    slot = max(of_slot, key=of_slot.__getitem__)
    client = FollowingClient(list(ports.values()))

    def total(*words: bytes) -> int:
        return sum(int(client.run(port, [words])[0][1:]) for port in ports.values())

    assert total(b"DBSIZE") == len(keys)
    assert total(b"CLUSTER", b"COUNTKEYSINSLOT", b"%d" % slot) == of_slot[slot]
    reader = hiredis.Reader()
    for port in ports.values():
        reader.feed(client.run(port, [[b"KEYS", b"*"]])[0])
    listed: list[Any] = [reader.gets() for _ in ports]
    assert sorted(key for found in listed for key in found) == sorted(keys)
    for port, name in zip(ports.values(), cycle((b"FLUSHALL", b"FLUSHDB")), strict=False):
        assert client.run(port, [[name]]) == [b"+OK\r\n"]
    assert total(b"DBSIZE") == 0
    client.close()
