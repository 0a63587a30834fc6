"""The stories that each rule of the protocol was paid for with, told with the rule on."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import majority
from quorate.facts.topology import Holder
from quorate.protocol.copies import primary
from quorate.protocol.copies.copy import Copy
from quorate.protocol.zone_master import decide_partition
from quorate_sim.changed import changed
from quorate_sim.disk import SimStorage
from quorate_sim.lease_stories import (
    a_lease_in_joint_mode_needs_the_new_voters_too,
    a_voter_that_restarts_reports_the_lease_it_has_forgotten,
)
from quorate_sim.planted_copies import (
    answer_above_a_hole,
    lineage_before_data,
    list_forgotten,
    promise_forgotten,
    store_known_by_name,
)
from quorate_sim.planted_masters import nobody_left_but_stuck, plus_one_for_plus_two
from quorate_sim.planted_primaries import (
    caught_up_before_joint,
    no_joint_mode,
    skip_the_lease_wait,
)
from quorate_sim.scenario import Scenario
from quorate_sim.unrepaired_story import a_copy_supplies_rows_only_of_a_term_it_adopted

pytestmark = pytest.mark.simulation


def test_lineage_before_data_a_rejoining_primary_gives_its_unanswered_updates_up() -> None:
    story = Scenario()
    old = story.primary
    story.written(old, b"x", b"0")
    story.cut(old)
    lost = story.write(old, b"x", b"never answered")
    new = story.wait_for_primary(old)
    story.written(new, b"y", b"1")
    story.heal()
    story.come_to_rest()
    assert lost.outcome == "unknown"
    story.crash(new)
    last = story.wait_for_primary(new)
    assert story.read(last, b"y") == b"1"
    assert story.read(last, b"x") == b"0"


def test_lineage_before_data_is_noticed_when_the_rule_is_off() -> None:
    with lineage_before_data(), pytest.raises((InvariantError, AssertionError)):
        test_lineage_before_data_a_rejoining_primary_gives_its_unanswered_updates_up()


def test_stale_noop_wins_an_activation_that_nobody_heard_of_changes_nothing() -> None:
    story = Scenario()
    first = story.primary
    second = story.backups()[0]
    story.written(first, b"x", b"0")
    story.cut(first)
    story.write(first, b"x", b"u")  # on the first alone
    story.wait(lambda: story.row.primary is not None and story.row.primary.node == second, "moved")
    story.wait(lambda: story.role(second) is not None, "the second activates")
    story.wait(lambda: story.role(second).persisted, "its entry is durable")
    story.crash(second)
    story.run(50)
    story.heal()
    now = story.wait_for_primary(first, second)
    story.written(now, b"y", b"1")
    story.start(second)
    story.come_to_rest()
    story.crash(now)
    last = story.wait_for_primary(now)
    assert story.read(last, b"y") == b"1"
    story.start(now)
    story.come_to_rest()


def test_same_term_twice_a_primary_that_restarts_at_once_gets_a_new_term() -> None:
    story = Scenario()
    old = story.primary
    story.written(old, b"x", b"0")
    before = story.row
    story.cut(old, off=tuple(story.backups()[1:]))
    story.write(old, b"x", b"u")
    story.run(2)  # the update is on its way to one backup; its own disk has not synced it
    story.crash(old, machine_too=True)
    story.run(20)
    story.start(old)
    story.heal()
    now = story.wait_for_primary()
    assert story.row.term > before.term
    story.written(now, b"y", b"w")
    story.come_to_rest()
    story.crash(now)
    last = story.wait_for_primary(now)
    assert story.read(last, b"y") == b"w"
    assert story.read(last, b"x") in (b"0", b"u")


def test_lease_forgotten_a_restarted_voter_waits_before_another_may_serve() -> None:
    a_voter_that_restarts_reports_the_lease_it_has_forgotten()


def _isolated_primary_is_read_while_another_is_activated() -> None:
    story = Scenario()
    old = story.primary
    other, friend = story.backups()
    story.written(old, b"x", b"1")
    # All but one friend are cut off: the friend goes on granting until it is asked by the next one.
    story.cut(old, off=(other, story.cluster.masters[-1].name))
    for _ in range(1200):
        story.run(2)
        if story.serves(old):
            story.cluster.clients.send_to(story.agent(old), "get", b"x")
    assert story.primary in (friend, other)


def test_leases_are_waited_out_before_another_serves() -> None:
    _isolated_primary_is_read_while_another_is_activated()


def test_leases_not_waited_out_are_noticed() -> None:
    with skip_the_lease_wait(), pytest.raises(InvariantError, match="I-4"):
        _isolated_primary_is_read_while_another_is_activated()


def test_answered_above_a_hole_an_answer_waits_for_all_counters_below_it() -> None:
    story = Scenario()
    primary = story.primary
    story.written(primary, b"a", b"0")
    links = [story.agent(primary).links[name] for name in story.backups()]
    first = story.write(primary, b"x", b"1")
    story.agent(primary)._flush()
    for link in links:
        story.cluster.network.lose(link)  # the first update is lost on its way
    story.run(120)
    assert first.outcome == "open"
    second = story.write(primary, b"y", b"2")
    story.wait(lambda: second.outcome == "ok", "the second is answered")
    assert first.outcome == "ok"
    story.crash(primary)
    last = story.wait_for_primary(primary)
    assert story.read(last, b"x") == b"1"
    assert story.read(last, b"y") == b"2"


def test_answered_above_a_hole_is_noticed_when_the_rule_is_off() -> None:
    with answer_above_a_hole(), pytest.raises((InvariantError, AssertionError)):
        test_answered_above_a_hole_an_answer_waits_for_all_counters_below_it()


def test_nobody_left_but_stuck_another_voter_takes_over() -> None:
    story = Scenario()
    old = story.primary
    story.written(old, b"x", b"1")
    story.cut(old, off=tuple(story.backups()))  # the master still hears it
    new = story.wait_for_primary(old)
    assert story.read(new, b"x") == b"1"
    story.heal()
    story.come_to_rest()


def test_nobody_left_but_stuck_is_noticed_when_the_rule_is_off() -> None:
    with nobody_left_but_stuck(), pytest.raises(AssertionError, match="serves"):
        test_nobody_left_but_stuck_another_voter_takes_over()


def test_list_forgotten_a_source_that_was_away_deletes_when_it_is_back() -> None:
    story = Scenario()
    story.written(story.primary, b"x", b"1")
    away = story.backups()[-1]
    story.crash(away)
    story.cluster.add_agent("a4")
    story.wait(lambda: "a4" in story.row.replicas, "the spare took its place")
    story.wait(lambda: away not in story.row.voter_nodes, "the lost node votes no more")
    story.start(away)
    story.come_to_rest()  # I-7: nothing of the partition is left there
    copy = story.zone(away).copies.get(0)
    assert copy is None or not copy.present


def test_destination_lost_its_store_an_empty_one_is_not_taken_for_it() -> None:
    story = Scenario(in_memory=True)
    for number in range(30):
        story.written(story.primary, b"k%d" % number, b"%d" % number)
    story.crash(story.backups()[-1])
    story.cluster.add_agent("a4")
    story.wait(
        lambda: (
            (active := story.row.active) is not None
            and active.destination is not None
            and active.destination.node == "a4"
        ),
        "the spare is being filled",
    )
    story.wait(
        lambda: (
            (zone := story.agent("a4").core.zones.get("zone")) is not None
            and 0 in zone.copies
            and zone.copies[0].adopted
        ),
        "it has caught up",
    )
    story.crash("a4")
    story.start("a4")
    story.come_to_rest()
    primary = story.primary
    for number in range(30):
        assert story.read(primary, b"k%d" % number) == b"%d" % number


def test_store_known_by_name_an_empty_one_makes_up_no_quorum() -> None:
    """Two of three had the write: one is away, and the other's disk is replaced by an empty one
    while the third, which never had it, asks for promises."""
    story = Scenario()
    primary = story.primary
    behind, emptied = story.backups()
    story.cut(behind, off=(primary, emptied))
    story.written(primary, b"x", b"1")
    story.crash(primary)
    story.wait(lambda: story.role(behind) is not None, "the third is to be the primary")
    story.crash(emptied)
    story.cluster.wipe(emptied)
    story.heal()
    story.start(emptied)
    story.run(6000)
    assert not story.serves(behind)
    story.start(primary)
    story.come_to_rest()
    assert story.read(story.wait_for_primary(), b"x") == b"1"


def test_store_known_by_name_is_noticed_when_the_rule_is_off() -> None:
    with store_known_by_name(), pytest.raises(InvariantError, match="I-5"):
        test_store_known_by_name_an_empty_one_makes_up_no_quorum()


def test_eager_new_master_nobody_is_judged_before_one_detection_time() -> None:
    story = Scenario()
    story.written(story.primary, b"x", b"1")
    before = story.row
    story.cluster.masters[-1].die()
    story.run(5000)
    story.cut(*story.cluster.agents, off=())  # nothing is cut between agents
    for name in story.cluster.agents:
        story.cluster.network.cut(name, "m2")
        story.cluster.network.cut("m2", name)
    story.cluster.add_master()
    story.run(600)
    assert story.row == before
    story.heal()
    story.come_to_rest()
    assert story.row == before


def test_two_removals_a_joint_majority_of_both_sides_is_needed() -> None:
    story = Scenario()
    primary = story.primary
    story.written(primary, b"x", b"1")
    story.cluster.add_agent("a4")
    leaver = story.backups()[-1]
    story.crash(leaver)
    role = story.role(primary)
    assert role is not None
    story.wait(lambda: role.row.active is not None, "a replacement begins", step_ms=1)
    story.wait(lambda: story.zone("a4").table[0] == role.row, "both ends know", step_ms=1)
    story.cut(story.cluster.masters[-1].name)  # it is not committed meanwhile
    story.wait(lambda: role.joint is not None, "joint mode")
    story.cut("a4", off=(primary,))
    story.run(10)
    op = story.write(primary, b"x", b"2")
    story.run(100)
    assert role.joint is not None
    assert op.outcome == "open"  # a majority of the old voters alone does not answer
    story.heal()
    story.wait(lambda: op.outcome == "ok", "answered")
    story.come_to_rest()


def test_two_removals_is_noticed_when_the_rule_is_off() -> None:
    with no_joint_mode(), pytest.raises(AssertionError, match="open"):
        test_two_removals_a_joint_majority_of_both_sides_is_needed()


def test_promise_forgotten_it_outlives_the_copy() -> None:
    story = Scenario()
    story.written(story.primary, b"x", b"1")
    away = story.backups()[-1]
    zone = story.zone(away)
    term = zone.copies[0].promise_term
    story.cut(away)
    story.cluster.add_agent("a4")
    story.wait(lambda: away not in story.row.voter_nodes, "another took its place")
    story.heal()
    story.come_to_rest()
    copy = zone.copies[0]
    assert not copy.present
    assert copy.promise_term >= term
    again = Copy(0, SimStorage(story.agent(away).disk.images["zone"]))
    again.recover()
    assert (again.promise_term, again.promise_holder) == (copy.promise_term, copy.promise_holder)


def test_reserved_number_an_equal_term_of_another_holder_is_refused() -> None:
    story = Scenario()
    copy = story.copy(story.primary)
    holder = copy.promise_holder
    assert holder is not None
    assert copy.promise(copy.promise_term, holder)
    assert not copy.promise(copy.promise_term, Holder(holder.node, holder.store, 99))
    assert not copy.promise(copy.promise_term, Holder("a9", "s9", 1))


def test_reserved_number_what_follows_a_prepared_row_has_another_version() -> None:
    story = Scenario()
    old = story.primary
    agent = story.agent(old)
    story.written(old, b"x", b"1")
    agent.run(lambda: agent.core.leave(agent.now()))
    story.wait(lambda: story.row.active is not None, "a hand-over begins", step_ms=1)
    before = story.row
    assert before.active is not None
    assert before.active.destination is not None
    destination = before.active.destination.node
    story.cluster.network.cut(destination, story.cluster.masters[-1].name)
    copy = story.copy(destination)
    story.wait(lambda: copy.prepared is not None, "the row is prepared", step_ms=1)
    story.cluster.masters[-1].die()
    story.cluster.add_master()
    story.cut(destination)
    story.wait(lambda: story.row.active is None, "it is given up")
    assert story.row.version == before.version + 2
    story.heal()
    story.come_to_rest()
    assert story.read(story.wait_for_primary(), b"x") == b"1"


def _moving_a_backup() -> tuple[Scenario, str, str]:
    """A story in which a backup moves to a new agent: joint mode has begun; leaver, destination."""
    story = Scenario()
    story.written(story.primary, b"x", b"1")
    leaver = story.backups()[-1]
    story.cluster.add_agent("a4")
    master = story.cluster.masters[-1]
    story.wait(lambda: "zone" in story.agent("a4").core.zones, "the new agent takes part")
    core = master.master
    assert core is not None
    master.run(lambda: core.drain(leaver, True, master.now()) and None)
    role = story.role(story.primary)
    assert role is not None
    story.wait(lambda: role.joint is not None, "joint mode", step_ms=1)
    assert role.joint is not None
    assert role.joint.migration.source == leaver
    return story, leaver, "a4"


def test_caught_up_before_joint_an_answer_needs_the_destination() -> None:
    story, leaver, destination = _moving_a_backup()
    first = story.primary
    other = next(name for name in story.backups() if name != leaver)
    story.cut(story.cluster.masters[-1].name)  # nothing is committed yet
    story.cut(first, off=(other, destination))
    op = story.write(first, b"x", b"2")
    story.run(100)
    assert op.outcome == "open"  # held by a majority of the old voters, and by nobody else
    story.heal()
    story.wait(lambda: op.outcome == "ok", "answered")
    story.come_to_rest()
    story.crash(first)
    assert story.read(story.wait_for_primary(first), b"x") == b"2"


def test_lease_not_joint_a_primary_that_misses_the_commit_stops_serving() -> None:
    a_lease_in_joint_mode_needs_the_new_voters_too()


def test_transfer_from_unrepaired_a_copy_supplies_rows_only_of_a_term_it_adopted() -> None:
    a_copy_supplies_rows_only_of_a_term_it_adopted()


def test_two_in_memory_the_one_that_is_left_suffices() -> None:
    story = Scenario(agents=2, replicas=2, in_memory=True)
    first, second = story.primary, story.backups()[0]
    story.written(first, b"x", b"1")
    story.crash(second)
    story.start(second)
    story.come_to_rest()
    story.crash(first)
    story.start(first)
    story.come_to_rest()
    assert story.read(story.wait_for_primary(), b"x") == b"1"


def test_two_in_memory_is_noticed_when_the_rule_is_off() -> None:
    def of_all(voters: int, dead: int) -> int:
        return majority(voters)

    with ExitStack() as off:
        off.enter_context(changed(primary, "quorum", of_all))
        off.enter_context(changed(decide_partition, "quorum", of_all))
        off.enter_context(pytest.raises(AssertionError, match="rest"))
        test_two_in_memory_the_one_that_is_left_suffices()


@pytest.mark.parametrize(
    ("defect", "story"),
    [
        (plus_one_for_plus_two, "reserved_number_what_follows"),
        (caught_up_before_joint, "caught_up_before_joint"),
        (promise_forgotten, "promise_forgotten"),
        (list_forgotten, "list_forgotten"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_rule_switched_off_is_noticed(
    defect: Callable[[], AbstractContextManager[None]], story: str
) -> None:
    told = next(told for name, told in globals().items() if name.startswith("test_" + story))
    with defect(), pytest.raises((InvariantError, AssertionError)):
        told()
