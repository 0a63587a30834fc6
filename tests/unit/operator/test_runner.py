"""The shell around the master: what it writes, what it publishes, and when it must do neither."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.events import ToldEvent
from quorate.protocol.messages.handshake import RefusalCode
from quorate.protocol.messages.master import CopyReport, EventsTold, Greet, MasterPing
from quorate.protocol.metastore import Key, NodeKey, Revision, ShardKey, Stored, Value, ZoneKey
from quorate.protocol.settings import DEFAULTS
from quorate.wire.long_frames import LONG_BYTES
from quorate_link import Link
from quorate_loopback.runner_world import (
    NAMES,
    ZONE,
    ScriptedAgent,
    World,
    is_available,
    state_of,
)
from quorate_loopback.waiting import until
from quorate_operator.mastership.agent_links import TELL_MS
from quorate_operator.mastership.runner import WAY_OUT, Runner
from quorate_operator.metastores.memory import MemoryMetastore


async def test_a_zone_is_placed_stored_published_and_served(world: World) -> None:
    runner = await world.lead()

    await until(lambda: is_available(runner), "available")

    assert len(world.stored_rows()) == ZONE.partitions
    for agent in world.agents.values():
        assert agent.rows == world.stored_rows()
        assert agent.members == NAMES

    def stored_ports() -> dict[str, int]:
        record = world.stored()[ZoneKey("uid-1")]
        return record.ports if isinstance(record, ZoneRecord) else {}

    await until(lambda: stored_ports() == dict.fromkeys(NAMES, 7000), "stored ports")
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


async def test_what_is_long_is_sent_to_agents_in_pieces(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole, it would hold up everything behind it, and a reader would have to take it at once."""
    runner = await world.lead()
    await until(lambda: is_available(runner) and len(runner._links.by_node) == 3, "available")
    agent = world.agents["agent-1"]
    lengths: list[int] = []
    write = Link._write

    def noted(link: Link, transport: Any, data: bytes, frames: int) -> None:
        lengths.append(len(data) // frames)
        write(link, transport, data, frames)

    monkeypatch.setattr(Link, "_write", noted)
    when = "2026-01-01T00:00:00Z"
    many = tuple(ToldEvent(at, when, "Normal", "Planted", "x" * 900) for at in range(1, 801))
    sent = EventsTold(1, many)

    runner._links.send([("agent-1", sent), ("agent-2", sent)])
    runner._links.add_news(many)
    runner._links.tell_news(1, runner._clock.now().boot_ms + TELL_MS)

    def long_ones() -> int:
        messages = [each for each in agent.told if isinstance(each, EventsTold)]
        return sum({*many} <= {*each.events} for each in messages)

    await until(lambda: long_ones() == 2, "both came")
    assert len(lengths) > 5
    assert max(lengths) <= LONG_BYTES


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

    assert await first.drain("agent-4", True) == ""
    await first.stop()
    second = await world.lead()

    await until(lambda: second.is_leading and len(second.status().nodes) == 4, "nodes")
    assert [node.name for node in second.status().nodes if node.draining] == ["agent-4"]
    await until(lambda: state_of(second, "agent-4") == "Draining", "it is back")
    assert await second.drain("agent-4", False) == ""
    await until(lambda: state_of(second, "agent-4") == "Online", "undrained")
    assert await second.drain("agent-4", False) == ""


async def test_a_master_finds_agents_whose_addresses_went_while_none_led(world: World) -> None:
    gone = NodeRecord("agent-9", "s", 1, "127.0.0.1", 9, "127.0.0.1")
    await world.metastore.write(NodeKey("agent-9"), gone, None)
    await world.add_agent("agent-4")
    first = await world.lead()
    await until(lambda: is_available(first), "available")
    await until(lambda: first.zones_naming("agent-4") == ("sessions",), "copies")
    await first.stop()
    agent = world.agents.pop("agent-4")

    second = await world.lead()

    await until(lambda: second.is_leading and state_of(second, "agent-4") == "Draining", "drained")
    await until(lambda: NodeKey("agent-9") not in world.stored(), "what holds nothing is released")
    await second.stop()
    await agent.close()


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
    mandate, failures = Revocable(), list[str]()
    runner = await world.lead(mandate, on_failed=failures.append)
    await until(lambda: is_available(runner), "available")
    await world_elsewhere.lead()
    await until(lambda: knows_all_events(world, runner), "nothing on its way to the agents")

    mandate.held = False
    for _ in range(10):  # turns in which a ping that was on its way arrives
        await asyncio.sleep(0)
    before, told = world.stored(), {name: len(a.told) for name, a in world.agents.items()}
    await world.agents["agent-3"].close()
    runner.set_zone(msgspec.structs.replace(ZONE, replicas=2))
    await until(lambda: not runner.is_leading, "stopped")
    pings = ping_count(world_elsewhere)
    await until(lambda: ping_count(world_elsewhere) > pings + 2, "pings of a master that leads")

    assert world.stored() == before
    assert {name: len(agent.told) for name, agent in world.agents.items()} == told
    assert "no longer be the master" in runner.problem
    assert failures == [f"cluster main: {runner.problem}"]  # its process ends, or it leads nothing


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
    twin = ScriptedAgent("agent-1", world.is_stored, store="another-store")
    await twin.listen()

    runner.set_addresses([*(agent.address for agent in world.agents.values()), twin.address])

    await until(lambda: twin.refused is not None, "refused")
    assert twin.refused is not None
    assert twin.refused.code == RefusalCode.NAME_IN_USE
    assert "another --name" in runner.unreached()[twin.address]
    assert twin.rows == {}
    await twin.close()


async def test_a_process_on_a_copy_of_a_folder_is_refused_and_the_original_goes_on(
    world: World,
) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    copy = ScriptedAgent("agent-1", world.is_stored)
    copy.hello = msgspec.structs.replace(copy.hello, process="another")
    await copy.listen()

    runner.set_addresses([*(agent.address for agent in world.agents.values()), copy.address])

    await until(lambda: copy.refused is not None, "refused")
    assert copy.refused is not None
    assert copy.refused.code == RefusalCode.COPIED_FOLDER
    assert "data folder of this one is a copy" in runner.unreached()[copy.address]
    assert copy.told == []
    await copy.close()
    assert all(node.online for node in runner.status().nodes)


async def test_an_agent_with_a_name_that_cannot_be_stored_is_refused(world: World) -> None:
    odd = ScriptedAgent("Agent_9", world.is_stored)
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


async def test_a_master_that_is_told_of_rows_which_the_metastore_lacks_leads_no_more(
    world: World,
) -> None:
    first = await world.lead()
    await until(lambda: is_available(first), "available")
    row = world.stored_rows()[7]
    copy = CopyReport(7, row.version + 3, None, "", row.term, 0, 0, True)
    world.agents["agent-2"].copies = (copy,)
    await first.stop()

    second = await world.lead()
    await until(lambda: "metastore is older" in second.problem, "its end")
    assert not second.is_leading

    assert f"agent agent-2 has row {row.version + 3} of partition 7" in second.problem


async def test_a_master_that_is_told_of_a_zone_which_the_metastore_lacks_leads_no_more(
    world: World,
) -> None:
    first = await world.lead()
    await until(lambda: is_available(first), "available")
    await until(lambda: _unrecorded(world) == {()}, "compared")
    await first.stop()
    world.agents["agent-2"].kept = ("uid-1", "uid-2")

    second = await world.lead()
    await until(lambda: "metastore is older" in second.problem, "its end")
    assert not second.is_leading

    about = "agent agent-2 has data of zone uid-2, and the metastore holds no record of it"
    assert second.problem.startswith(f"the metastore is older than its agents: {about} (if ")
    assert second.problem.endswith(f"set it aside); {WAY_OUT}")


async def test_a_zone_that_another_process_has_stored_meanwhile_ends_no_master(
    world: World,
) -> None:
    class Late(MemoryMetastore):
        """From some time on, another process writes a zone after the next reading."""

        readings = -1

        async def load(self) -> dict[Key, Stored]:
            if self.readings >= 0:
                self.readings += 1
            if self.readings == 2:
                await self.write(ZoneKey("uid-2"), ZoneRecord("uid-2", "b", 1, 1), None)
            return await super().load()

    metastore = Late()
    first = await world.lead(metastore=metastore)
    await until(lambda: is_available(first), "available")
    await until(lambda: _unrecorded(world) == {()}, "compared")
    await first.stop()
    world.agents["agent-2"].kept = ("uid-1", "uid-2")
    metastore.readings = 0

    second = await world.lead(metastore=metastore)
    await until(lambda: metastore.readings > 1 and is_available(second), "another reading")
    master = second.master
    await until(lambda: master is not None and not master.has_doubts, "it is judged")

    assert second.is_leading


def _unrecorded(world: World) -> set[tuple[str, ...] | None]:
    records = [each for each in world.stored().values() if isinstance(each, NodeRecord)]
    return {record.unrecorded for record in records}


def overtake(world: World, known_term: int) -> None:
    """An agent has obeyed another master, of this number."""
    for link in world.agents["agent-1"].links:
        link.close("agent agent-1: it is over", RefusalCode.STALE_MASTER, known_term)


@pytest.mark.parametrize(("known_term", "next_term"), [(0, 3), (1, 3), (600, 602)])
async def test_a_master_that_an_agent_refuses_ends_and_the_next_one_counts_above(
    world: World, known_term: int, next_term: int
) -> None:
    overtaken: list[str] = []
    first = await world.lead(on_overtaken=overtaken.append)
    await until(lambda: is_available(first), "available")

    overtake(world, known_term)
    await until(lambda: overtaken, "its end")

    assert not first.is_leading
    above = max(known_term, 1)
    assert first.problem == f"agent agent-1: it is over; the next master term will be above {above}"
    assert overtaken == [f"cluster main: {first.problem}"]
    second = await world.lead()
    await until(lambda: is_available(second), "available")
    assert second.status().master_term == next_term


async def test_a_master_without_the_mandate_that_an_agent_refuses_was_merely_followed(
    world: World,
) -> None:
    mandate, overtaken = Revocable(), list[str]()
    runner = await world.lead(mandate, on_overtaken=overtaken.append)
    await until(lambda: is_available(runner), "available")

    mandate.held = False
    overtake(world, 6)
    await until(lambda: not runner.is_leading, "its end")

    assert runner.problem == "this operator may no longer be the master"
    await runner.stop()
    assert overtaken == []


def loses_the_mandate(runner: Runner) -> None:
    assert isinstance(runner._mandate, Revocable)
    runner._mandate.held = False


def breaks_an_invariant(runner: Runner) -> None:
    runner.stop_for(InvariantError("planted"))


def meets_a_defect(runner: Runner) -> None:
    runner.fail(KeyError("planted"))


@pytest.mark.parametrize("end", [loses_the_mandate, breaks_an_invariant, meets_a_defect])
async def test_agents_are_not_linked_to_a_master_that_has_ended(
    world: World, end: Callable[[Runner], None]
) -> None:
    """An agent says that it is led as long as a master is linked."""
    runner = await world.lead(Revocable())
    await until(lambda: is_available(runner), "available")

    end(runner)

    await until(lambda: not any(a.links for a in world.agents.values()), "no link left")
    assert not runner.is_leading


async def test_an_agent_that_does_not_believe_the_number_is_greeted_by_those_that_do(
    world: World,
) -> None:
    runner = await world.lead()
    await until(lambda: is_available(runner), "available")
    away = world.agents["agent-1"]

    for link in away.links:
        link.close("agent agent-1: term 1 is not believed", RefusalCode.TERM_AHEAD)

    greeting = Greet(1, "127.0.0.1", away.hello.peer_port)
    for name in ("agent-2", "agent-3"):
        await until(lambda name=name: greeting in world.agents[name].told, "word of it")
    assert runner.is_leading
