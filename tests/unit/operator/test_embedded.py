"""The embedded operator does not go on as if it led when it no longer does."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quorate.protocol.master.master import Master
from quorate.protocol.messages.handshake import RefusalCode
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.status import ClusterStatus
from quorate_link.secret import write_private
from quorate_loopback.runner_world import ScriptedAgent
from quorate_loopback.sides import SECRET
from quorate_loopback.waiting import until
from quorate_operator.embedded.judgement import refusals
from quorate_operator.embedded.objects import ObjectStore
from quorate_operator.embedded.operator import OVERTAKEN_MAX, Embedded
from quorate_operator.embedded.recover import recover
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.sqlite_file import EmbeddedStore
from quorate_operator.names import ANNOTATION_PAUSED

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
    await until(lambda: sum(len(each.status.zones) for each in embedded.clusters()) == 20, "zones")
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


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[Embedded]:
    embedded = Embedded(EmbeddedStore.open(folder), DEFAULTS, folder)
    await embedded.start()
    try:
        yield embedded
    finally:
        await embedded.close()


async def test_data_that_agents_keep_of_a_zone_deleted_without_its_cluster_ends_no_master(
    tmp_path: Path,
) -> None:
    """Its agents are out of reach then, so the zone's records go before the data."""
    write_private(tmp_path / "main.json", json.dumps(SECRET.texts()))
    zone = {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": 1}
    agent = ScriptedAgent("agent-1", lambda table: None)
    async with AsyncExitStack() as stack:
        await agent.listen()
        stack.push_async_callback(agent.close)
        spec = {"external": {"addresses": [agent.address]}}
        async with _running(tmp_path) as embedded:
            objects = embedded.objects
            await _declare(objects, "StorageCluster", "main", spec)
            await _declare(objects, "Zone", "sessions", zone)
            [made] = objects.list("zones")
            uid = made["metadata"]["uid"]
            served = partial(embedded.with_status, made)
            await until(lambda: served()["status"]["phase"] == "Available", "available")
            agent.kept = (uid,)

            await objects.remove("storageclusters", "main")
            await objects.mark_deleted("zones", "sessions")
            embedded.changed()
            await until(lambda: not objects.list("zones"), "the zone deleted")
            await _declare(objects, "StorageCluster", "main", spec)
            embedded.changed()
            await until(lambda: _noted(embedded) == (uid,), "what it has is compared anew")

        async with _running(tmp_path) as embedded:
            await until(lambda: _keeps(embedded, uid), "the next master heard of it")
            assert embedded.not_ready() == ""


def _noted(embedded: Embedded) -> tuple[str, ...] | None:
    runner = embedded.runner("main")
    record = runner.registration("agent-1") if runner is not None else None
    return record.unrecorded if record is not None else None


def _keeps(embedded: Embedded, uid: str) -> bool:
    runner = embedded.runner("main")
    return runner is not None and bool(runner.keepers(uid))


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


class Paused:
    """Two agents, and an operator that is started again on the same folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agents = [ScriptedAgent(f"agent-{n}", lambda table: None) for n in (1, 2)]
        self.embedded = self._make()

    def _make(self) -> Embedded:
        return Embedded(EmbeddedStore.open(self.folder), DEFAULTS, self.folder)

    async def start(self) -> None:
        for agent in self.agents:
            await agent.listen()
        write_private(self.folder / "main.json", json.dumps(SECRET.texts()))
        await self.embedded.start()

    async def restart(self) -> None:
        await self.embedded.close()
        self.embedded = self._make()
        await self.embedded.start()

    async def close(self) -> None:
        await self.embedded.close()
        for agent in self.agents:
            await agent.close()

    async def declare(self, kind: str, name: str, spec: Json, *, paused: bool = False) -> None:
        annotations = {ANNOTATION_PAUSED: "true"} if paused else {}
        metadata = {"name": name, "annotations": annotations}
        made = {"apiVersion": "quorate.io/v1alpha1", "kind": kind, "metadata": metadata}
        await self.embedded.objects.put(f"{kind.lower()}s", name, {**made, "spec": spec})
        self.embedded.changed()

    async def cluster(self, count: int, *, paused: bool = False) -> None:
        """With the first `count` agents."""
        addresses = [agent.address for agent in self.agents[:count]]
        spec = {"external": {"addresses": addresses}}
        await self.declare("StorageCluster", "main", spec, paused=paused)

    async def zone(self, name: str, replicas: int = 1, *, paused: bool = False) -> None:
        spec = {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": replicas}
        await self.declare("Zone", name, spec, paused=paused)

    def status(self, plural: str, name: str) -> Json:
        made = self.embedded.objects.get(plural, name)
        assert made is not None
        return dict(self.embedded.with_status(made)["status"])

    def conditions(self, plural: str, name: str) -> dict[str, str]:
        status = self.status(plural, name)
        return {each["type"]: each["status"] for each in status["conditions"]}

    async def until_online(self, count: int) -> None:
        await until(
            lambda: sum(m["state"] == "Online" for m in self.members()) == count, "agents online"
        )

    def members(self) -> list[Json]:
        return list(self.status("storageclusters", "main")["members"])

    async def look(self) -> None:
        for _ in range(3):
            await self.embedded.reconcile()


@pytest.fixture
async def paused(tmp_path: Path) -> AsyncIterator[Paused]:
    found = Paused(tmp_path)
    await found.start()
    try:
        yield found
    finally:
        await found.close()


async def test_a_paused_zone_stays_as_it_was_and_a_new_one_is_not_created(paused: Paused) -> None:
    await paused.cluster(2)
    await paused.zone("sessions")
    await paused.until_online(2)
    await until(lambda: paused.status("zones", "sessions")["phase"] == "Available", "available")

    await paused.zone("sessions", replicas=2, paused=True)
    await paused.zone("new", paused=True)
    await paused.look()

    runner = paused.embedded.runner("main")
    assert runner is not None
    assert [(each.name, each.replicas) for each in runner.known_zones().values()] == [
        ("sessions", 1)
    ]
    assert paused.conditions("zones", "sessions")["Paused"] == "True"
    assert paused.status("zones", "sessions")["observedGeneration"] == 1

    await paused.zone("sessions", replicas=2)
    await until(
        lambda: [each.replicas for each in runner.known_zones().values()] == [2], "it goes on"
    )
    assert "Paused" not in paused.conditions("zones", "sessions")


async def test_a_paused_cluster_dials_whom_it_dialed_also_after_a_restart(paused: Paused) -> None:
    await paused.cluster(1)
    await paused.until_online(1)

    await paused.cluster(2, paused=True)
    await paused.zone("new")
    await paused.look()
    for _ in range(2):
        await paused.until_online(1)
        status = paused.status("storageclusters", "main")
        assert status["addresses"] == [paused.agents[0].address]
        assert status["observedGeneration"] == 1
        assert paused.conditions("storageclusters", "main")["Paused"] == "True"
        assert paused.conditions("zones", "new")["Paused"] == "True"
        runner = paused.embedded.runner("main")
        assert runner is not None
        assert runner.known_zones() == {}
        assert [*runner.unreached()] == []
        await paused.restart()

    await paused.cluster(2)
    await paused.until_online(2)
    await until(lambda: paused.status("zones", "new")["phase"] == "Available", "the zone")


async def test_data_of_a_zone_that_is_deleted_stays_while_its_cluster_is_paused(
    paused: Paused,
) -> None:
    await paused.cluster(1)
    await paused.zone("sessions")
    await paused.until_online(1)
    runner = paused.embedded.runner("main")
    assert runner is not None
    await until(lambda: len(runner.known_zones()) == 1, "led")
    await paused.cluster(1, paused=True)
    await paused.look()

    await paused.embedded.objects.mark_deleted("zones", "sessions")
    await paused.look()

    assert [each.deleting for each in runner.known_zones().values()] == [False]
    assert paused.embedded.objects.get("zones", "sessions") is not None
    await paused.cluster(1)
    await until(lambda: paused.embedded.objects.get("zones", "sessions") is None, "gone")


@pytest.mark.parametrize(
    ("name", "stale_uid", "stale_name"),
    [
        ("sessions", "00000000-stale", "sessions-00000000"),
        ("sessions", "ffffffff-stale", "sessions-ffffffff"),
        (f"{'s' * 40}-{'x' * 9}", "ffffffff-stale", f"{'s' * 40}-ffffffff"),  # the longest
    ],
)
async def test_a_recovery_leaves_a_live_zone_its_name_beside_stale_data_of_that_name(
    tmp_path: Path, name: str, stale_uid: str, stale_name: str
) -> None:
    """An agent that was away when a zone was deleted has data of it, and the name is used anew."""
    write_private(tmp_path / "main.json", json.dumps(SECRET.texts()))
    zone = {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": 1}
    agent = ScriptedAgent("agent-1", lambda table: None)
    async with AsyncExitStack() as stack:
        await agent.listen()
        stack.push_async_callback(agent.close)
        async with _running(tmp_path) as embedded:
            spec = {"external": {"addresses": [agent.address]}}
            await _declare(embedded.objects, "StorageCluster", "main", spec)
            await _declare(embedded.objects, "Zone", name, zone)
            live = _uids(embedded)[name]
            await until(lambda: _is_available(embedded, name), "available")
            agent.zone = _runner(embedded).known_zone(live)
        assert agent.zone is not None
        agent.older = (msgspec.structs.replace(agent.zone, uid=stale_uid),)

        await recover(tmp_path, "main", [agent.address], SECRET.keys("tool"), tmp_path)

        async with _running(tmp_path) as embedded:
            await until(lambda: len(_uids(embedded)) == 2, "declared again", 20)
            assert _uids(embedded) == {name: live, stale_name: stale_uid}


async def test_a_name_is_kept_for_the_zone_of_a_replaced_file_until_its_agent_has_told(
    tmp_path: Path,
) -> None:
    """A Zone made under that name would be a stranger beside the data of the user's."""
    write_private(tmp_path / "main.json", json.dumps(SECRET.texts()))
    zone = {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": 1}
    manifest = {"apiVersion": "quorate.io/v1alpha1", "kind": "Zone", "spec": zone}
    sessions, others = ({**manifest, "metadata": {"name": name}} for name in ("sessions", "others"))
    away = ScriptedAgent("agent-1", lambda table: None)
    beside = ScriptedAgent("agent-2", lambda table: None)
    async with AsyncExitStack() as stack:
        for agent in (away, beside):
            await agent.listen()
            stack.push_async_callback(agent.close)
        addresses = [away.address, beside.address]
        async with _running(tmp_path) as embedded:
            spec = {"external": {"addresses": addresses[:1]}}
            await _declare(embedded.objects, "StorageCluster", "main", spec)
            await _declare(embedded.objects, "Zone", "sessions", zone)
            live = _uids(embedded)["sessions"]
            await until(lambda: _is_available(embedded, "sessions"), "available")
            away.zone = _runner(embedded).known_zone(live)
        await away.close()

        await recover(tmp_path, "main", addresses, SECRET.keys("tool"), tmp_path)

        async with _running(tmp_path) as embedded:
            [kept, free] = refusals(embedded, [sessions, others])
            assert kept.startswith(
                "Zone sessions: metadata.name: the replaced file of StorageClust"
            )
            assert (kept, free) == (embedded.kept_name("sessions"), "")
            await embedded.objects.remove("storageclusters", "main")
            assert embedded.kept_name("sessions") == ""
            spec = {"external": {"addresses": addresses}}
            await _declare(embedded.objects, "StorageCluster", "main", spec)
            assert embedded.kept_name("sessions")

            back = ScriptedAgent("agent-1", lambda table: None)
            back.zone = away.zone
            await back.listen(int(away.address.rpartition(":")[2]))
            stack.push_async_callback(back.close)
            await until(lambda: _uids(embedded) == {"sessions": live}, "declared again", 20)
            assert refusals(embedded, [sessions, others]) == ["", ""]


def _uids(embedded: Embedded) -> dict[str, str]:
    """The declared zones: name -> uid."""
    zones = [made["metadata"] for made in embedded.objects.list("zones")]
    return {each["name"]: each["uid"] for each in zones}


def _runner(embedded: Embedded) -> Runner:
    runner = embedded.runner("main")
    assert runner is not None
    return runner


def _is_available(embedded: Embedded, name: str) -> bool:
    made = embedded.objects.get("zones", name)
    return made is not None and embedded.with_status(made)["status"]["phase"] == "Available"
