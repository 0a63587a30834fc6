"""Agents that leave while their master does not know what they have: they are asked first."""

import msgspec
import pytest

from quorate.planning.absence.disruption import Disruption, EvictionBlock, NoEviction
from quorate_operator.owned import owned_objects
from quorate_operator.owned.agent_names import Agents, Untold, address, untold_agents
from quorate_owned.facts import nobody
from quorate_owned.kubelet import SETS
from quorate_owned.managed import ZONE, LoneRunner, Managed

FIVE = [f"agent-{number}" for number in range(1, 6)]
LEAVING = Agents(("agent-1",), ("agent-3", "agent-2"), True)


def dial(managed: Managed) -> None:
    """Connect agents that run to the present master, where it dials them."""
    view = managed.see()
    for agent in managed.kubelet.running:
        known = managed.world.master.agents.get(agent)
        is_dialed = view is not None and address("main", "shop", agent) in view.addresses
        if is_dialed and (known is None or not known.connected):
            managed.world.connect(agent)


@pytest.mark.parametrize("asked_s", [0.0, 1.0])
async def test_agents_whose_registrations_and_rows_are_lost_are_drained_before_they_go(
    undeclared: Managed, monkeypatch: pytest.MonkeyPatch, asked_s: float
) -> None:
    """Meanwhile no operator ran, and fewer agents were declared."""
    managed, world = undeclared, undeclared.world
    world.rebuilds = True
    managed.declare(replicas=5)
    await managed.until(lambda: managed.registered == FIVE, "five agents")
    managed.place_zone()
    before = world.rows(ZONE)
    assert {node for row in before.values() for node in row.voter_nodes} == {*FIVE}
    world.stored.clear()
    world.follow()
    world.same_processes = True
    monkeypatch.setattr(owned_objects, "ASKED_S", asked_s)
    managed.runner = LoneRunner(world)
    if not asked_s:
        world.master.set_zone(msgspec.structs.replace(ZONE, placed=True), world.now)
    managed.declare(replicas=3)
    if asked_s:  # the Zone is seen later than the cluster
        await managed.until(lambda: dial(managed) or managed.registered == FIVE, "dialed")
        world.master.set_zone(msgspec.structs.replace(ZONE, placed=True), world.now)

    def is_rebuilt() -> bool:
        dial(managed)
        return world.rows(ZONE).keys() == before.keys()

    await managed.until(is_rebuilt, "every row is known again")
    assert managed.kinds("statefulsets") == [f"main-{agent}" for agent in FIVE]
    await managed.until(lambda: len(managed.kinds("statefulsets")) == 3, "two have left")

    staying = {at.removeprefix(f"{SETS}/main-") for at in managed.api.objects if SETS in at}
    rows = world.rows(ZONE)
    assert {node for row in rows.values() for node in row.voter_nodes} == staying
    assert all(len(row.voters) == 3 and row.version > before[p].version for p, row in rows.items())


@pytest.mark.parametrize("asked_s", [0.0, 1.0])
async def test_a_process_that_never_registers_is_replaced_once_a_new_master_has_asked(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, asked_s: float
) -> None:
    """The others keep all copies; the new template may mend it."""
    managed.place_zone()
    await managed.until(lambda: managed.may_be_away() == 1, "all is well")
    world = managed.world
    with monkeypatch.context() as no_link:
        no_link.setattr(world, "connect", lambda *nodes: None)
        managed.declare(replicas=4)
        await managed.until(lambda: "agent-4" in managed.kubelet.running, "a process")
    monkeypatch.setattr(owned_objects, "ASKED_S", asked_s)
    managed.runner = LoneRunner(world)
    before = len(managed.kubelet.restarted)
    managed.declare(image="localhost/quorate-agent:2")
    await managed.until(lambda: len(managed.kubelet.restarted) > before, "the first is replaced")

    assert (managed.kubelet.restarted[before] == "agent-4") == (asked_s == 0.0)
    await managed.until(lambda: managed.registered == FIVE[:4], "all are there")
    assert managed.fewest_spare >= 0


def test_rows_that_are_being_rebuilt_keep_all_agents_also_those_without_a_process() -> None:
    rebuilt = NoEviction(EvictionBlock.ROWS_REBUILT, "rows of Zone cart are being rebuilt")
    disruption = Disruption((), (), 0, rebuilt)

    found = untold_agents(LEAVING, {"agent-3"}, disruption, is_asking=False)

    assert found == Untold(("agent-3", "agent-2"), rebuilt.message)


def test_a_new_master_asks_agents_that_run() -> None:
    found = untold_agents(LEAVING, {"agent-3"}, nobody(), is_asking=True)

    assert found == Untold(("agent-2",), "agents are being asked what they have")
    assert untold_agents(LEAVING, {*LEAVING.leaving}, nobody(), is_asking=True) == Untold()


def test_later_an_agent_that_never_took_part_goes_at_once() -> None:
    assert untold_agents(LEAVING, (), nobody(), is_asking=False) == Untold()


@pytest.mark.parametrize("cause", ["another master", "rows are rebuilt"])
async def test_an_agent_that_drains_is_not_declared_again(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """Dialed by a declared address, its drain would be taken back."""
    managed.declare(replicas=4)
    await managed.until(lambda: managed.registered == FIVE[:4], "four agents")
    managed.place_zone()
    managed.declare(replicas=3)

    def draining() -> list[str]:
        return [node.name for node in managed.runner.status().nodes if node.draining]

    await managed.until(draining, "one drains")
    (name,) = draining()
    if cause == "another master":
        monkeypatch.setattr(owned_objects, "ASKED_S", 60.0)
        managed.runner = LoneRunner(managed.world)
    else:
        rebuilt = NoEviction(EvictionBlock.ROWS_REBUILT, "rows of Zone cart are being rebuilt")
        told = Disruption((), (), 0, rebuilt)
        monkeypatch.setattr(managed.runner, "disruption", lambda *about: told)

    def untold() -> bool:
        view = managed.see()
        return view is not None and bool(view.untold)

    await managed.until(untold, "agents are asked")
    view = managed.see()
    assert view is not None
    assert address("main", "shop", name) not in view.addresses
