"""A primary that had no quorum has one again; the master does not see the other voters."""

import pytest

from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
from quorate.protocol.zone_master.partition_reports import TROUBLES_REPEATED_MS
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 1, 3)
ELSEWHERE = tuple(Trouble("uid-2", p, 1, TroubleKind.NO_QUORUM, 9_000) for p in range(500))


@pytest.fixture
def world() -> LoneMaster:
    """The primary alone is seen by the master, and has just said that it has no quorum."""
    world = placed_master(ZONE)
    primary = _primary(world)
    world.kill(*({"a", "b", "c"} - {primary}))
    world.pass_time(1_000)
    _report(world, (_trouble(world),))
    assert world.status(ZONE).read_only == 1
    return world


def _primary(world: LoneMaster) -> str:
    primary = world.rows(ZONE)[0].primary
    assert primary is not None
    return primary.node


def _trouble(world: LoneMaster) -> Trouble:
    term = world.rows(ZONE)[0].term
    return Trouble(ZONE.uid, 0, term, TroubleKind.NO_QUORUM, world.settings.lease_ms)


def _report(world: LoneMaster, troubles: tuple[Trouble, ...]) -> None:
    world.ms += 500
    world.master.receive(_primary(world), AgentReport(2, troubles), world.now)
    world.master.tick(world.now)
    world.write()


def test_its_partition_is_available_as_soon_as_it_does_not_say_so_any_more(
    world: LoneMaster,
) -> None:
    _report(world, (_trouble(world),))
    assert world.status(ZONE).unavailable == 1

    _report(world, ())

    assert world.status(ZONE).unavailable == 0


def test_no_other_voter_is_elected_when_the_master_sees_them_again(world: LoneMaster) -> None:
    primary, term = _primary(world), world.rows(ZONE)[0].term
    _report(world, ())

    world.connect(*({"a", "b", "c"} - {primary}))
    world.pass_time(5_000)

    assert _primary(world) == primary
    assert world.rows(ZONE)[0].term == term


def test_another_voter_is_elected_while_it_says_so(world: LoneMaster) -> None:
    primary = _primary(world)
    for node in sorted({"a", "b", "c"} - {primary}):
        hello = world.hello(node, 1, "")
        world.master.agent_connected(hello, world.now)
    world.write()
    _report(world, (_trouble(world),))

    assert _primary(world) != primary


def test_a_report_that_is_full_of_others_leaves_it_as_it_is_for_a_while(world: LoneMaster) -> None:
    _report(world, ELSEWHERE)
    assert world.status(ZONE).unavailable == 1

    world.ms += TROUBLES_REPEATED_MS
    _report(world, ELSEWHERE)

    assert world.status(ZONE).unavailable == 0
