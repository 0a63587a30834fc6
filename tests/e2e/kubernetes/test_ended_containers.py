"""Containers of agents end and cannot start again: their status proves that their memory is gone.

So a zone in memory goes on with the copies that are left, one after the other, where a zone on disk
waits for its majority.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from quorate.facts.topology import LAST_WORD
from quorate.wire.partition_table import StoredRow, partition_row
from quorate_cluster.digests import are_equal
from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_nodes.cluster import Json
from quorate_nodes.release.digests import digests
from quorate_nodes.release.installed import CLUSTER, REGISTRY, VERSION, ZONE, Installed
from quorate_nodes.volumes import volume_of
from quorate_nodes.watching.pod_process import frozen, process_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CACHE = "cache"
PARTITIONS = 8
IMAGE = f"{REGISTRY}/quorate-agent:{VERSION}"
KEPT = f"{REGISTRY}/kept-agent:{VERSION}"
GIVEN_UP_S_MAX = 30
"""Far less than the 300 s after which an agent that is only silent is replaced."""


def test_votes_in_memory_are_given_up_as_soon_as_kubernetes_shows_the_end(
    first_day: Installed, measured: Measured
) -> None:
    first, second, last = _agents(first_day)
    with _cache(first_day):
        with Pulses(first_day, CACHE, keys_max=PARTITIONS) as pulses:
            with _ended_without_image(first_day, first) as one:
                one_s, one_gap_s = _given_up(first_day, pulses, one, {second, last})
                with _ended_with_damaged_folder(first_day, second) as two:
                    two_s, two_gap_s = _given_up(first_day, pulses, two, {last})
                    _check_waits_on_disk(first_day, {first, second, last})
                    pulses.wait_all_written_since(time.monotonic())
                    first_day.wait(lambda: first_day.zone_is(CACHE, "Available"), "a zone served")
            began = time.monotonic()
            first_day.wait_whole(120)
            first_day.wait(lambda: first_day.zone_is(CACHE, "FullyReplicated"), "copies in memory")
            back_s = time.monotonic() - began
            pulses.wait_all_written_since(time.monotonic())
        measured(
            "containers of two of three agents ended, a zone in memory",
            f"votes given up after {one_s:.1f} s and {two_s:.1f} s, keys not writable for at most"
            f" {one_gap_s:.1f} s and {two_gap_s:.1f} s; whole {back_s:.1f} s after they can start;"
            f" failed commands {len(pulses.failed)}",
        )
        assert pulses.lost() == []
        assert first_day.unexpected(pulses) == []
        assert _voters(first_day, CACHE) == {first, second, last}
        for end in (one, two):
            record = _record(first_day, end.agent)
            assert not record.get("ended")
            assert record["storeId"] == end.store, "its disk is as it was"
        first_day.wait(lambda: are_equal(digests(first_day, CACHE)), "equal copies in memory")
    first_day.wait(lambda: are_equal(digests(first_day, ZONE)), "equal copies on disk")


def _check_waits_on_disk(installed: Installed, voters: set[str]) -> None:
    """The zone on disk keeps these votes: its copies are there, and may return."""
    installed.wait(lambda: not installed.zone_is(ZONE, "Available"), "a zone that waits")
    assert _voters(installed, ZONE) == voters


class _End(NamedTuple):
    """The moment at which the process of an agent ended: its word, and the store of its disk."""

    agent: str
    process: str
    store: str
    moment: float


def _given_up(
    installed: Installed, pulses: Pulses, end: _End, left: set[str]
) -> tuple[float, float]:
    """Wait until only these vote in memory; seconds for that, and of the longest gap of a key."""
    installed.wait(
        lambda: _record(installed, end.agent).get("ended"), "a record that says so", GIVEN_UP_S_MAX
    )
    assert _record(installed, end.agent)["process"] == end.process
    installed.wait(lambda: _voters(installed, CACHE) == left, f"votes of {left}", GIVEN_UP_S_MAX)
    given_up_s = time.monotonic() - end.moment
    installed.wait(lambda: _is_told(installed, end.agent), "an Event that says so")
    pulses.wait_all_written_since(time.monotonic())
    return given_up_s, max(pulses.longest_gaps_s(end.moment))


def _is_told(installed: Installed, agent: str) -> bool:
    events = installed.get("events", "--field-selector=reason=MemoryGone")["items"]
    return any(str(each["message"]).startswith(f"{agent} has lost") for each in events)


@contextmanager
def _ended_without_image(installed: Installed, agent: str) -> Iterator[_End]:
    """It was killed, and its node has its image no more; in the end the image is there again."""
    node = installed.nodes.node(_pod(installed, agent)["spec"]["nodeName"])
    node.tag_image(IMAGE, KEPT)
    node.remove_image(IMAGE)
    try:
        end = _kill(installed, agent)
        yield end
        shown = _container(installed, agent)
        assert shown["lastState"]["terminated"]["message"].strip() == f"{LAST_WORD}{end.process}"
        assert shown["restartCount"] == 0
    finally:
        node.tag_image(KEPT, IMAGE)
        node.remove_image(KEPT)


@contextmanager
def _ended_with_damaged_folder(installed: Installed, agent: str) -> Iterator[_End]:
    """It was killed, and its next ones end at once; in the end its folder is whole again."""
    node, _, number = volume_of(installed, agent).rpartition("-")
    (path,) = installed.nodes.node(node).volume(int(number)).rglob("folder.json")
    with frozen(_process(installed, agent)):  # nothing writes it meanwhile
        whole = path.read_bytes()
        path.write_bytes(whole[:10])
        end = _kill(installed, agent)
    try:
        yield end
        installed.wait(lambda: _is_backing_off(installed, agent), "a next one that waits")
        assert _container(installed, agent)["restartCount"] > 0
    finally:
        path.write_bytes(whole)


def _is_backing_off(installed: Installed, agent: str) -> bool:
    waits = _container(installed, agent)["state"].get("waiting", {})
    return bool(waits.get("reason") == "CrashLoopBackOff")


def _kill(installed: Installed, agent: str) -> _End:
    record, process = _record(installed, agent), _process(installed, agent)
    os.kill(process, signal.SIGKILL)
    return _End(agent, record["process"], record["storeId"], time.monotonic())


def _process(installed: Installed, agent: str) -> int:
    return process_of(_pod(installed, agent)["metadata"]["name"], "quorate-agent")


@contextmanager
def _cache(installed: Installed) -> Iterator[None]:
    """A zone in memory on all agents; in the end it is gone."""
    spec = {
        "clusterRef": {"name": CLUSTER},
        "partitions": PARTITIONS,
        "replicas": 3,
        "storage": "InMemory",
        "deletionPolicy": "Delete",
    }
    with installed.zone_made(CACHE, spec):
        yield


def _voters(installed: Installed, zone: str) -> set[str]:
    """The agents that vote in any partition of the zone."""
    tables = installed.get("partitiontables")["items"]
    rows = [
        partition_row(StoredRow.model_validate(each))
        for table in tables
        if table["spec"]["zoneRef"]["name"] == zone
        for each in table["spec"].get("rows", [])
    ]
    return {voter for row in rows for voter in row.voter_nodes}


def _record(installed: Installed, agent: str) -> Json:
    """The registration of the agent."""
    records = [each["spec"] for each in installed.get("storagenodes")["items"]]
    return next(each for each in records if each["node"] == agent)


def _agents(installed: Installed) -> list[str]:
    return [pod["metadata"]["labels"]["quorate.io/agent"] for pod in installed.pods()]


def _pod(installed: Installed, agent: str) -> Json:
    return next(
        pod for pod in installed.pods() if pod["metadata"]["labels"]["quorate.io/agent"] == agent
    )


def _container(installed: Installed, agent: str) -> Json:
    """The container of the agent, as its kubelet has told."""
    (found,) = _pod(installed, agent)["status"]["containerStatuses"]
    return dict(found)
