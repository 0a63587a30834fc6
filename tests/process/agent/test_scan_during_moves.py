"""SCAN while partitions change hands: a key that is there throughout is returned, at least once.

A client scans the agents that it knew when it began; who came later it may never hear of.
"""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from quorate_cluster.background import Background
from quorate_cluster.changes import grow
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.waiting import wait_until
from quorate_differential.raw_replies import RawConnection
from quorate_differential.scan_replies import read_scan

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

KEYS = frozenset(b"stable-%d" % number for number in range(3000))


class _Scan:
    """One agent's scan, page by page."""

    def __init__(self, port: int) -> None:
        self.found: list[bytes] = []
        self._connection = RawConnection("127.0.0.1", port)
        self._cursor = b"0"
        self.is_over = False

    def go_on(self, port: int) -> None:
        """The agent was restarted, the connection with it; the cursor is the same."""
        self._connection.__exit__()
        self._connection = RawConnection("127.0.0.1", port)

    def page(self) -> None:
        cursor, keys = read_scan(self._connection.ask([b"SCAN", self._cursor, b"COUNT", b"10"]))
        self._cursor = cursor
        self.found += keys
        self.is_over = cursor == b"0"

    def rest(self) -> None:
        while not self.is_over:
            self.page()
        self._connection.__exit__()


class _StockScans(Background):
    """Whole scans by one client, which is never told that there are other agents now.

    A page that is asked of an agent while it is down ends the scan with an error of the library's:
    a KeyError if the table names that agent no more.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.count = 0
        self.missed: list[int] = []
        self.ended: list[str] = []
        self._client = cluster.client("z")
        self.add_road(self._scan)

    def scan_once(self) -> None:
        found = set(self._client.scan_iter(count=30))
        self.count += 1
        if missing := KEYS - found:
            self.missed.append(len(missing))

    def wait_for_another(self) -> None:
        """Until one more scan that begins now is whole."""
        count = self.count
        wait_until(
            lambda: self.count > count + 1, "another whole scan", 90, lambda: self.ended[-3:]
        )

    def _scan(self) -> None:
        while not self.stop.is_set():
            try:
                self.scan_once()
            except (RedisConnectionError, KeyError) as error:
                self.ended.append(repr(error))


def _cluster_with_keys(start_cluster: StartCluster) -> Cluster:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=32)
    with cluster.client("z").pipeline() as pipeline:
        for key in KEYS:
            pipeline.set(key, b"x")
        pipeline.execute()
    return cluster


def _begin(cluster: Cluster) -> dict[str, _Scan]:
    """A scan of each agent, of which one page was read."""
    scans = {name: _Scan(cluster.port("z", name)) for name in ("agent-1", "agent-2", "agent-3")}
    for scan in scans.values():
        scan.page()
    return scans


def _end(scans: dict[str, _Scan]) -> list[bytes]:
    for scan in scans.values():
        scan.rest()
    return [key for scan in scans.values() for key in scan.found]


def test_scans_lose_no_key_to_an_agent_that_joins_and_none_to_one_that_dies(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster = _cluster_with_keys(start_cluster)
    begun = _begin(cluster)
    first = _Scan(cluster.port("z", "agent-1"))
    first.rest()
    with _StockScans(cluster) as stock:
        newcomer = grow(cluster)
    assert cluster.primaries()["agent-4"] > 0
    stock.scan_once()

    found = _end(begun)
    one_after_the_other = {"agent-2": _Scan(cluster.port("z", "agent-2"))}
    one_after_the_other["agent-3"] = _Scan(cluster.port("z", "agent-3"))

    measured("scans beside an agent that joined", f"{len(found) - len(KEYS)} keys came twice")
    assert stock.count > 1
    assert stock.ended == []
    assert stock.missed == []
    assert set(found) == KEYS
    assert {*first.found, *_end(one_after_the_other)} == KEYS

    # Its partitions are asked of it until it dies, then of who comes after it.
    begun = _begin(cluster)
    newcomer.kill()
    assert set(_end(begun)) == KEYS


def test_scans_go_on_over_a_restart_of_every_agent(
    start_cluster: StartCluster, measured: Measured
) -> None:
    cluster = _cluster_with_keys(start_cluster)
    begun = _begin(cluster)
    with _StockScans(cluster) as stock:
        for name, agent in cluster.agents.items():
            agent.terminate()
            agent.start()
            cluster.wait_online(name)
            cluster.wait_quiet("z")
            begun[name].go_on(cluster.port("z", name))
            for scan in begun.values():
                scan.page()
        stock.wait_for_another()

    found = _end(begun)

    measured(
        "scans over a rolling restart",
        f"{len(found) - len(KEYS)} keys came twice; of redis-py's scans {stock.count} were whole,"
        f" {len(stock.ended)} ended with an error",
    )
    assert set(found) == KEYS
    assert stock.missed == []


def test_a_scan_inside_a_transaction_leads_on_to_all_keys(start_cluster: StartCluster) -> None:
    cluster = _cluster_with_keys(start_cluster)
    known = list(cluster.agents)
    grow(cluster)
    found: set[bytes] = set()
    for name in known:
        with RawConnection("127.0.0.1", cluster.port("z", name)) as connection:
            cursor = b"0"
            while True:
                scan = [b"SCAN", cursor, b"COUNT", b"100"]
                said = connection.ask_all([[b"MULTI"], scan, [b"EXEC"]])[-1]
                to, keys = read_scan(said.removeprefix(b"*1\r\n"))
                if to == cursor:  # that partition is elsewhere, which EXEC does not wait for
                    to, keys = read_scan(connection.ask(scan))
                found.update(keys)
                cursor = to
                if cursor == b"0":
                    break

    assert found == KEYS
