"""The shell around the master: what it writes, what it publishes, and when it must do neither."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages import (
    FORMAT_VERSION,
    Activated,
    AgentReport,
    AskInventory,
    EventsTold,
    Hello,
    Inventory,
    MasterPing,
    Members,
    Message,
    Refused,
    RowsStored,
    ZoneGone,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.metastore import (
    Conflict,
    Key,
    NodeKey,
    OutcomeUnknown,
    Revision,
    ShardKey,
    Stored,
    Unavailable,
    Value,
    ZoneKey,
)
from quorate.protocol.settings import DEFAULTS
from quorate_link import BaseHandler, Endpoint, Link
from quorate_operator.metastore_memory import MemoryMetastore
from quorate_operator.metrics import Metrics
from quorate_operator.runner import Always, Mandate, Runner

ZONE = ZoneRecord("uid-1", "sessions", 128, 3)
NAMES = ("agent-1", "agent-2", "agent-3")


class ScriptedAgent(BaseHandler):
    """Says what an agent without trouble says; keeps what the master told it."""

    def __init__(self, name: str, check: Callable[[ZoneTable], None], store: str = "") -> None:
        self.hello = Hello(
            FORMAT_VERSION, "agent", "main", name, store or f"store-of-{name}", 1, 0, "127.0.0.1"
        )
        self.told: list[Message] = []
        self.members: tuple[str, ...] = ()
        self.rows: dict[int, PartitionRow] = {}
        self.refused: Refused | None = None
        self.address = ""
        self._check = check
        self._endpoint = Endpoint(lambda: self.hello, self)

    async def listen(self, port: int = 0) -> None:
        port = await self._endpoint.listen("127.0.0.1", port)
        self.hello = msgspec.structs.replace(self.hello, peer_port=port, client_host="127.0.0.1")
        self.address = f"127.0.0.1:{port}"

    async def close(self) -> None:
        await self._endpoint.close()

    async def die(self) -> None:
        """End as a killed process does: no goodbye, the port refuses."""
        for link in self._endpoint.links:
            link.abort("killed")
        await self._endpoint.close()

    def on_down(self, link: Link, refused: Refused | None) -> None:
        self.refused = refused or self.refused

    def on_message(self, link: Link, message: Message) -> None:
        self.told.append(message)
        match message:
            case Members(nodes=nodes):
                self.members = tuple(node.name for node in nodes)
            case AskInventory():
                link.send(Inventory("", ()))
            case MasterPing(sequence=sequence):
                link.send(AgentReport(sequence))
            case ZoneTable(zone=zone, rows=rows):
                self._check(message)
                for row in rows:
                    self.rows[row.partition] = row
                    if row.primary is not None and row.primary.node == self.hello.node:
                        link.send(Activated(zone.uid, row.partition, row.term, 0))
                stored = tuple((row.partition, row.version) for row in rows)
                link.send(RowsStored(zone.uid, stored))
                link.send(ZoneReady(zone.uid, 7000))
            case ZoneGone(zone=uid):
                self.rows.clear()
                link.send(RowsStored(uid, ()))
            case _:
                pass


class World:
    """One metastore, agents and runners on one loop."""

    def __init__(self) -> None:
        self.metastore = MemoryMetastore()
        self.agents: dict[str, ScriptedAgent] = {}
        self.runners: list[Runner] = []
        self.published_early: list[str] = []

    async def add_agent(self, name: str, store: str = "", port: int = 0) -> ScriptedAgent:
        agent = ScriptedAgent(name, self._is_stored, store)
        await agent.listen(port)
        self.agents[name] = agent
        return agent

    async def lead(
        self, mandate: Mandate | None = None, metastore: MemoryMetastore | None = None
    ) -> Runner:
        if metastore is not None:
            self.metastore = metastore
        runner = Runner(
            "main",
            self.metastore,
            mandate=mandate or Always(),
            settings=DEFAULTS,
            metrics=Metrics(),
        )
        self.runners.append(runner)
        runner.set_addresses([agent.address for agent in self.agents.values()])
        runner.set_zone(ZONE)
        runner.start()
        return runner

    def stored(self) -> dict[Key, Value]:
        return {key: each.value for key, each in self.metastore.stored.items()}

    def stored_rows(self) -> dict[int, PartitionRow]:
        shards = [each for key, each in self.stored().items() if isinstance(key, ShardKey)]
        return {row.partition: row for rows in shards if isinstance(rows, tuple) for row in rows}

    def _is_stored(self, table: ZoneTable) -> None:
        stored = self.stored_rows()
        for row in table.rows:
            known = stored.get(row.partition)
            if known is None or known.version < row.version:
                self.published_early.append(f"{row} while the metastore holds {known}")

    async def close(self) -> None:
        for runner in self.runners:
            await runner.stop()
        for agent in self.agents.values():
            await agent.close()


@asynccontextmanager
async def world_of_agents() -> AsyncIterator[World]:
    world = World()
    for name in NAMES:
        await world.add_agent(name)
    yield world
    await world.close()
    assert world.published_early == []


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with world_of_agents() as world:
        yield world


@pytest.fixture
async def world_elsewhere() -> AsyncIterator[World]:
    """Another cluster, left alone: what happens in it shows how time goes by."""
    async with world_of_agents() as world:
        yield world


async def until(is_true: Callable[[], bool], what: str, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, f"not in {timeout_s} s: {what}"
        await asyncio.sleep(0.005)


def is_available(runner: Runner) -> bool:
    zones = runner.status().zones
    return bool(zones) and zones[0].available == ZONE.partitions


async def test_a_zone_is_placed_stored_published_and_served(world: World) -> None:
    runner = await world.lead()

    await until(lambda: is_available(runner), "available")

    assert len(world.stored_rows()) == ZONE.partitions
    for agent in world.agents.values():
        assert agent.rows == world.stored_rows()
        assert agent.members == NAMES
    await until(lambda: len(runner.status().zones[0].ports) == 3, "ports")
    record = world.stored()[ZoneKey("uid-1")]
    assert isinstance(record, ZoneRecord)
    assert record.ports == dict.fromkeys(NAMES, 7000)
    assert runner.unreached() == {}


async def test_every_agent_is_told_what_happens_in_order_and_gathered(world: World) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    start = runner.events.after(0)[0]
    agent = world.agents["agent-1"]

    def told() -> list[int]:
        messages = [message for message in agent.told if isinstance(message, EventsTold)]
        return [event.sequence for message in messages for event in message.events]

    for node in ("agent-2", "agent-3"):
        await world.agents[node].die()
    await until(lambda: len(runner.events.after(0)[0]) > len(start) + 2, "losses")
    await until(lambda: bool(told()) and told()[-1] == runner.events.last, "all of it told")
    assert told() == [*range(told()[0], runner.events.last + 1)]
    messages = [message for message in agent.told if isinstance(message, EventsTold)]
    assert len(messages) < len(told())
    assert {message.master_term for message in messages} == {1}


class Faulty(MemoryMetastore):
    """Every write goes wrong once, in one way; every third reading is not possible."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self._seen: dict[Key, int] = {}
        self._reads = 0

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        self._seen[key] = self._seen.get(key, 0) + 1
        await asyncio.sleep(0.01)
        if self._seen[key] % 2 == 0:
            return await super().write(key, value, expected)
        if self.fault == "done":
            await super().write(key, value, expected)
            raise OutcomeUnknown("the answer was lost")
        if self.fault == "not done":
            raise OutcomeUnknown("the request was lost")
        if self.fault == "touched":
            present = await super().read(key)
            if present is not None:
                await super().write(key, present.value, present.revision)
        raise Conflict("another wrote")

    async def read(self, key: Key) -> Stored | None:
        self._reads += 1
        if self._reads % 3 == 1:
            raise Unavailable("not now")
        return await super().read(key)


@pytest.mark.parametrize("fault", ["done", "not done", "conflict", "touched"])
async def test_nothing_is_published_before_an_unclear_write_was_read_again(
    world: World, fault: str
) -> None:
    runner = await world.lead(metastore=Faulty(fault))

    await until(lambda: is_available(runner), f"available although writes are {fault}")

    assert {row.version for row in world.stored_rows().values()} == {1}
    assert world.published_early == []


async def test_the_next_master_goes_on_where_the_first_ended(world: World) -> None:
    first = await world.lead()
    await until(lambda: is_available(first), "available")
    rows = world.stored_rows()
    await first.stop()

    second = await world.lead()

    await until(lambda: second.is_leading and second.status().master_term == 2, "term 2")
    await until(lambda: all(node.online for node in second.status().nodes), "agents back")
    assert second.status().zones[0].partitions == len(rows)


async def test_the_next_master_knows_who_is_draining(world: World) -> None:
    await world.add_agent("agent-4")
    first = await world.lead()
    await until(lambda: is_available(first) and len(first.status().nodes) == 4, "available")

    assert first.drain("agent-4", True) == ""
    await until(lambda: state_of(first, "agent-4") == "Draining", "draining")
    await first.stop()
    second = await world.lead()

    await until(lambda: second.is_leading and len(second.status().nodes) == 4, "nodes")
    assert state_of(second, "agent-4") == "Draining"
    assert second.drain("agent-4", False) == ""
    await until(lambda: state_of(second, "agent-4") == "Online", "undrained")


def state_of(runner: Runner, node: str) -> str:
    return next((each.state for each in runner.status().nodes if each.name == node), "unknown")


class Revocable:
    """A mandate that a test can take away."""

    def __init__(self) -> None:
        self.held = True

    def holds(self) -> bool:
        return self.held


def ping_count(world: World) -> int:
    told = world.agents["agent-1"].told
    return sum(isinstance(message, MasterPing) for message in told)


def knows_all_events(world: World, runner: Runner) -> bool:
    """Whether the last event was told to every agent; it is told last, some time later."""
    last = runner.events.last
    return all(
        any(isinstance(m, EventsTold) and m.events[-1].sequence == last for m in agent.told)
        for agent in world.agents.values()
    )


async def test_without_the_mandate_nothing_is_written_and_nothing_sent(
    world: World, world_elsewhere: World
) -> None:
    mandate = Revocable()
    runner = await world.lead(mandate)
    await until(lambda: is_available(runner), "available")
    await world_elsewhere.lead()
    await until(lambda: knows_all_events(world, runner), "nothing on its way to the agents")

    mandate.held = False
    before, told = world.stored(), {name: len(a.told) for name, a in world.agents.items()}
    await world.agents["agent-3"].close()
    runner.set_zone(msgspec.structs.replace(ZONE, replicas=2))
    await until(lambda: not runner.is_leading, "stopped")
    pings = ping_count(world_elsewhere)
    await until(lambda: ping_count(world_elsewhere) > pings + 2, "pings of a master that leads")

    assert world.stored() == before
    assert {name: len(agent.told) for name, agent in world.agents.items()} == told
    assert "mandate" in runner.problem


async def test_a_write_under_way_when_the_mandate_ends_is_not_published(world: World) -> None:
    mandate = Revocable()

    class Slow(MemoryMetastore):
        async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
            revision = await super().write(key, value, expected)
            if isinstance(key, ShardKey):
                mandate.held = False
            return revision

    runner = await world.lead(mandate, Slow())
    await until(lambda: not runner.is_leading, "stopped")

    assert all(agent.rows == {} for agent in world.agents.values())


async def test_rows_that_must_not_exist_stop_the_cluster_before_anything_is_written(
    world: World,
) -> None:
    await world.metastore.write(ZoneKey("uid-1"), ZONE, None)
    twice = PartitionRow(0, 1, 1, None, ("agent-1", "agent-1"), ())
    await world.metastore.write(ShardKey("uid-1", 0), (twice,), None)
    before = world.stored()

    runner = await world.lead()

    await until(lambda: "must not exist" in runner.problem, "stopped")
    assert "partition 0: an owner appears twice" in runner.problem
    assert world.stored() == before
    assert all(agent.told == [] for agent in world.agents.values())


@pytest.mark.parametrize("end", [ScriptedAgent.die, ScriptedAgent.close])
async def test_an_agent_whose_process_is_gone_has_left_at_once(
    world: World, end: Callable[[ScriptedAgent], Awaitable[None]]
) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")

    began = time.monotonic()
    await end(world.agents["agent-3"])
    await until(
        lambda: [node.name for node in runner.status().nodes if not node.online] == ["agent-3"],
        "agent-3 left",
    )

    assert time.monotonic() - began < DEFAULTS.failure_detection_ms / 1000 / 2
    await until(
        lambda: all("agent-3" not in row.replicas for row in world.stored_rows().values()),
        "rows without agent-3",
    )
    assert runner.unreached().keys() == {world.agents["agent-3"].address}


async def test_a_second_agent_of_the_same_name_is_refused_and_told_why(world: World) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    twin = ScriptedAgent("agent-1", world._is_stored, store="another-store")
    await twin.listen()

    runner.set_addresses([*(agent.address for agent in world.agents.values()), twin.address])

    await until(lambda: twin.refused is not None, "refused")
    assert twin.refused is not None
    assert twin.refused.code == "name-in-use"
    assert "another --name" in runner.unreached()[twin.address]
    assert twin.rows == {}
    await twin.close()


async def test_a_process_on_a_copy_of_a_folder_is_refused_and_the_original_goes_on(
    world: World,
) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    copy = ScriptedAgent("agent-1", world._is_stored)
    copy.hello = msgspec.structs.replace(copy.hello, process="another")
    await copy.listen()

    runner.set_addresses([*(agent.address for agent in world.agents.values()), copy.address])

    await until(lambda: copy.refused is not None, "refused")
    assert copy.refused is not None
    assert copy.refused.code == "copied-folder"
    assert "data folder of this one is a copy" in runner.unreached()[copy.address]
    assert copy.told == []
    await copy.close()
    assert all(node.online for node in runner.status().nodes)


async def test_an_agent_with_a_name_that_cannot_be_stored_is_refused(world: World) -> None:
    odd = ScriptedAgent("Agent_9", world._is_stored)
    await odd.listen()
    runner = await world.lead()

    runner.set_addresses([odd.address])

    await until(lambda: odd.refused is not None, "refused")
    assert "lower-case letters" in runner.unreached()[odd.address]
    assert NodeKey("Agent_9") not in world.stored()
    await odd.close()


async def test_a_deleted_zone_leaves_nothing_in_the_metastore_or_on_agents(world: World) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")

    runner.set_zone(msgspec.structs.replace(ZONE, deleting=True))

    await until(lambda: runner.is_zone_gone("uid-1"), "gone")
    assert all(agent.rows == {} for agent in world.agents.values())
    await until(
        lambda: not any(isinstance(k, ShardKey | ZoneKey) for k in world.stored()), "erased"
    )


async def test_a_lost_metastore_is_waited_for(world: World) -> None:
    class Late(MemoryMetastore):
        asked = 0

        async def load(self) -> dict[Key, Stored]:
            self.asked += 1
            if self.asked < 3:
                raise Unavailable("not yet")
            return await super().load()

    runner = await world.lead(metastore=Late())

    await until(lambda: "cannot be read" in runner.problem, "says so")
    await until(lambda: is_available(runner), "available in the end")


async def test_a_defect_while_starting_is_told_and_not_led_over(world: World) -> None:
    class Broken(MemoryMetastore):
        async def load(self) -> dict[Key, Stored]:
            raise ValueError("not as it was written")

    runner = await world.lead(metastore=Broken())

    await until(lambda: "ValueError: not as it was written" in runner.problem, "says so")
    assert not runner.is_leading


async def test_a_defect_in_a_write_ends_leading(world: World) -> None:
    class Broken(MemoryMetastore):
        async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
            raise ValueError("cannot be encoded")

    runner = await world.lead(metastore=Broken())

    await until(lambda: "ValueError: cannot be encoded" in runner.problem, "says so")
    assert not runner.is_leading


async def test_rows_whose_zone_record_is_gone_are_taken_over_not_overwritten(world: World) -> None:
    first = await world.lead()
    await until(lambda: is_available(first), "available")
    await first.stop()
    rows = world.stored_rows()
    head = await world.metastore.read(ZoneKey("uid-1"))
    assert head is not None
    await world.metastore.write(ZoneKey("uid-1"), None, head.revision)

    second = await world.lead()

    await until(lambda: ZoneKey("uid-1") in world.stored(), "record again")
    await until(lambda: bool(second.status().zones) and is_available(second), "available again")
    assert all(world.stored_rows()[p].version >= rows[p].version for p in rows)
    assert {p: r.term for p, r in world.stored_rows().items()} == {
        p: r.term for p, r in rows.items()
    }


class Contested(MemoryMetastore):
    """The next removals meet a conflict, or are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def write(self, key: Key, value: Value | None, expected: Revision | None) -> Revision:
        if value is None and isinstance(key, NodeKey):
            await self.answers.wait()
            if self.conflicts:
                self.conflicts -= 1
                raise Conflict(f"{key}: another wrote it")
        return await super().write(key, value, expected)


async def with_a_node_that_left(world: World, metastore: Contested) -> Runner:
    """agent-4 is registered and gone; no row names it."""
    record = NodeRecord("agent-4", "store-4", 1, "127.0.0.1", 9, "127.0.0.1", left_since_ms=1)
    await metastore.write(NodeKey("agent-4"), record, None)
    runner = await world.lead(metastore=metastore)
    await until(lambda: is_available(runner), "available")
    return runner


async def test_a_removal_that_meets_a_conflict_is_done_when_it_is_answered(world: World) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.conflicts = 2

    assert await runner.forget_node("agent-4") == ""

    assert NodeKey("agent-4") not in world.stored()


async def test_the_answer_to_a_removal_waits_for_the_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    metastore = Contested()
    runner = await with_a_node_that_left(world, metastore)
    metastore.answers.clear()
    monkeypatch.setattr("quorate_operator.removals.REMOVAL_S", 0.2)

    with pytest.raises(OutcomeUnknown, match="agent-4: the metastore did not confirm"):
        await runner.forget_node("agent-4")

    metastore.answers.set()
    assert await runner.forget_node("agent-4") == ""
    assert NodeKey("agent-4") not in world.stored()


async def test_rows_that_another_stored_are_taken_without_a_conflict(world: World) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    await until(lambda: len(runner.status().zones[0].ports) == 3, "ports")
    key, rows = next((k, v) for k, v in world.stored().items() if isinstance(k, ShardKey))
    assert isinstance(rows, tuple)
    changed = msgspec.structs.replace(rows[0], version=rows[0].version + 7)
    stored = await world.metastore.read(key)
    assert stored is not None
    await world.metastore.write(key, (changed, *rows[1:]), stored.revision)

    await runner.look_again()

    await until(
        lambda: all(agent.rows[0] == changed for agent in world.agents.values()), "published"
    )
