"""The wait of a master for a primary that does not serve while voters are filling."""

from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.master import TransferProgress
from quorate.protocol.settings import DEFAULTS
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 1, 3)
BOUND_MS, STALL_MS = DEFAULTS.activation_bound_ms, DEFAULTS.migration_stall_ms


def _elected(lost: bool = True) -> tuple[LoneMaster, str, str]:
    """Another voter was just elected, and nothing serves; the new primary, and one more voter."""
    world = placed_master(ZONE)
    world.serves = lambda node: False
    former = world.rows(ZONE)[0].replicas[0]
    assert former is not None
    world.kill(former)
    if not lost:
        world.connect(former)
    world.wait(lambda: _primary(world) != former)
    row = world.rows(ZONE)[0]
    return world, _primary(world), next(n for n in row.owners if n not in (former, _primary(world)))


def _primary(world: LoneMaster) -> str:
    primary = world.rows(ZONE)[0].primary
    assert primary is not None
    return primary.node


def _tell(world: LoneMaster, node: str, bytes_done: int, done: bool = False) -> None:
    told = TransferProgress(ZONE.uid, 0, bytes_done, 1 << 30, "NoHistory", done)
    world.master.receive(node, told, world.now)


def test_a_new_primary_has_time_while_the_voter_that_it_needs_fetches_all_rows() -> None:
    world, primary, filling = _elected()
    for second in range(3 * STALL_MS // 1_000):
        _tell(world, filling, 1_000 + second)
        world.pass_time(1_000)

    assert _primary(world) == primary


def test_it_has_that_time_before_the_first_rows_have_come() -> None:
    world, primary, filling = _elected()
    _tell(world, filling, 0)
    world.pass_time(STALL_MS - 2_000)
    assert _primary(world) == primary

    world.pass_time(4_000)
    assert _primary(world) == filling


def test_a_copy_that_begins_anew_gives_no_time_until_it_has_more_than_before() -> None:
    world, primary, filling = _elected()
    _tell(world, filling, 9_000)
    world.pass_time(STALL_MS - 2_000)
    _tell(world, filling, 0)
    assert _primary(world) == primary

    world.pass_time(4_000)
    assert _primary(world) == filling


def test_it_has_no_more_time_when_that_voter_stands_still() -> None:
    world, primary, filling = _elected()
    for _ in range(STALL_MS // 1_000 - 1):
        _tell(world, filling, 1_000)  # the same again is no progress
        world.pass_time(1_000)
    assert _primary(world) == primary

    world.pass_time(2_000)
    assert _primary(world) == filling


def test_it_has_the_usual_time_from_when_that_voter_has_everything() -> None:
    world, primary, filling = _elected()
    _tell(world, filling, 1_000)
    world.pass_time(2 * BOUND_MS)
    _tell(world, filling, 2_000, done=True)
    world.pass_time(BOUND_MS - 200)
    assert _primary(world) == primary

    world.pass_time(400)
    assert _primary(world) == filling


def test_what_was_filled_in_an_earlier_term_gives_no_time() -> None:
    world, _, filling = _elected()
    _tell(world, filling, 1_000)
    world.pass_time(STALL_MS + 1_000)
    assert _primary(world) == filling
    term = world.rows(ZONE)[0].term

    world.pass_time(2 * BOUND_MS)
    assert world.rows(ZONE)[0].term > term


def test_a_voter_that_fills_gives_no_time_to_a_primary_that_has_a_quorum_without_it() -> None:
    world, primary, filling = _elected(lost=False)
    for second in range(2 * BOUND_MS // 1_000):
        _tell(world, filling, 1_000 + second)
        world.pass_time(1_000)

    assert _primary(world) != primary


def test_a_primary_that_waits_for_a_quorum_is_not_noted_again_and_again() -> None:
    world, _, other = _elected()
    world.kill(other)
    world.pass_time(4 * BOUND_MS)
    part = world.master.zones[ZONE.uid].parts[0]

    world.pass_time(4 * BOUND_MS)

    assert world.master.zones[ZONE.uid].parts[0] is part
