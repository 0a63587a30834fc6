"""The embedded operator does not go on as if it led when it no longer does."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from quorate.protocol.master import Master
from quorate.protocol.messages import RefusalCode
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.status import ClusterStatus
from quorate_link.secret import write_private
from quorate_loopback.runner_world import ScriptedAgent
from quorate_loopback.sides import SECRET
from quorate_loopback.waiting import until
from quorate_operator.embedded.objects import ObjectStore
from quorate_operator.embedded.operator import OVERTAKEN_MAX, Embedded
from quorate_operator.metastores.sqlite_file import EmbeddedStore

Json = dict[str, Any]


class Counting(Embedded):
    """Counts how often it looks."""

    looks = 0

    async def reconcile(self) -> None:
        self.looks += 1
        await super().reconcile()


class Defective(Counting):
    """Fails the second time it looks."""

    async def reconcile(self) -> None:
        await super().reconcile()
        if self.looks == 2:
            raise ValueError("a defect")


async def test_a_defect_while_reconciling_is_handed_to_whoever_waits(tmp_path: Path) -> None:
    embedded = Defective(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path / "secrets")
    await embedded.start()

    with pytest.raises(ValueError, match="a defect"):
        async with asyncio.timeout(10):
            await embedded.wait_failed()

    await embedded.close()


async def test_who_stops_waiting_for_a_failure_does_not_end_the_loop(tmp_path: Path) -> None:
    embedded = Counting(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path / "secrets")
    await embedded.start()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await embedded.wait_failed()

    seen = embedded.looks
    async with asyncio.timeout(10):
        while embedded.looks < seen + 3:
            embedded.changed()
            await asyncio.sleep(0.01)

    await embedded.close()


async def _declare(objects: ObjectStore, kind: str, name: str, spec: dict[str, object]) -> None:
    made = {"apiVersion": "quorate.io/v1alpha1", "kind": kind, "metadata": {"name": name}}
    await objects.put(f"{kind.lower()}s", name, {**made, "spec": spec})


async def test_many_zones_are_observed_with_one_status_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    status = Master.status

    def counted(master: Master) -> ClusterStatus:
        asked.append(1)
        return status(master)

    monkeypatch.setattr(Master, "status", counted)
    embedded = Embedded(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path / "secrets")
    objects = embedded.objects
    spec = {"external": {"addresses": ["127.0.0.1:1"]}}
    await _declare(objects, "StorageCluster", "main", spec)
    for number in range(20):
        zone = {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": 1}
        await _declare(objects, "Zone", f"z{number}", zone)
    await embedded.start()
    await until(lambda: sum(len(each.zones) for _, _, each in embedded.clusters()) == 20, "zones")
    asked.clear()

    said = [embedded.with_status(zone)["status"] for zone in objects.list("zones")]

    assert [zone["phase"] for zone in said] == ["Pending"] * 20
    assert len(asked) <= 1
    await embedded.close()


async def test_a_zone_whose_cluster_is_gone_still_says_that_it_was_placed(tmp_path: Path) -> None:
    agent = ScriptedAgent("agent-1", lambda table: None)
    await agent.listen()
    write_private(tmp_path / "main.json", json.dumps(SECRET.texts()))
    embedded = Embedded(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path)
    objects = embedded.objects
    await embedded.start()
    spec = {"external": {"addresses": [agent.address]}}
    await _declare(objects, "StorageCluster", "main", spec)
    zone = {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": 1}
    await _declare(objects, "Zone", "sessions", zone)
    [made] = objects.list("zones")

    def status() -> Json:
        return embedded.with_status(made)["status"]

    await until(lambda: status()["phase"] == "Available", "an available zone")
    assert status()["placedUid"] == made["metadata"]["uid"]

    await objects.remove("storageclusters", "main")
    await embedded.reconcile()

    assert status()["phase"] == "Pending"
    assert status()["placedUid"] == status()["zoneId"] == made["metadata"]["uid"]
    await embedded.close()
    await agent.close()


async def test_a_cluster_whose_agents_know_later_masterships_is_led_again_with_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quorate_operator.embedded.operator.OVERTAKEN_PAUSE_S", 0.001)
    agent = ScriptedAgent("agent-1", lambda table: None)
    await agent.listen()
    write_private(tmp_path / "main.json", json.dumps(SECRET.texts()))
    embedded = Embedded(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path)
    await embedded.start()
    spec = {"external": {"addresses": [agent.address]}}
    await _declare(embedded.objects, "StorageCluster", "main", spec)

    def is_led_above(term: int) -> bool:
        runner = embedded.runner("main")
        status = runner.status() if runner is not None and runner.is_leading else None
        if status is None or status.master_term <= term:
            return False
        return any(node.online for node in status.nodes)

    for known in range(0, 100 * (OVERTAKEN_MAX + 1), 100):
        await until(partial(is_led_above, known), "a mastership above what the agent knows")
        for link in agent.links:
            link.close("agent agent-1: it is over", RefusalCode.STALE_MASTER, known + 100)

    await until(lambda: "start this one again" in embedded.not_ready(), "the bound")
    await embedded.close()
    await agent.close()


async def test_a_defect_while_backing_up_is_handed_to_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(store: EmbeddedStore) -> Path:
        raise ValueError("a defect of backups")

    monkeypatch.setattr("quorate_operator.embedded.operator.FIRST_S", 0.01)
    monkeypatch.setattr(EmbeddedStore, "back_up", broken)
    embedded = Embedded(EmbeddedStore.open(tmp_path), DEFAULTS, tmp_path / "secrets")
    await embedded.start()

    with pytest.raises(ValueError, match="a defect of backups"):
        async with asyncio.timeout(10):
            await embedded.wait_failed()

    monkeypatch.undo()
    await embedded.close()
