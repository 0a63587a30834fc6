"""The metastore is lost: rows are rebuilt from what agents have, and no answered write is lost."""

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.masterships import TERMS_BELIEVED
from quorate.protocol.messages.master import CaughtUp, Freeze, PreparedRow, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Sync
from quorate.protocol.metastore import ZoneKey
from quorate.protocol.zone_master.recovery.recover_rows import RECOVERY_GAP
from quorate_sim.master_process import MasterProcess
from quorate_sim.network import Link, Process
from quorate_sim.planted_masters import (
    believed_though_frozen,
    both_sides_vote_as_one,
    changes_of_voters_unheard_of,
    newcomers_vote_when_rebuilt,
    rebuilt_whatever_the_mastership,
    rebuilt_without_a_quorum,
)
from quorate_sim.rebuilt_story import (
    Rebuilt,
    lose_metastore,
    recover,
    who_is_left_lacks_what_was_answered,
    without_a_quorum_nothing_serves_and_the_missing_are_named,
)
from quorate_sim.refused_story import rebuilding_waits_for_an_agent_that_refuses_its_zone
from quorate_sim.scenario import Scenario

pytestmark = pytest.mark.simulation


def test_rows_are_rebuilt_above_all_that_was_and_every_write_is_there() -> None:
    story = Scenario()
    serving = story.primary
    story.written(serving, b"x", b"1")
    before = story.row

    lose_metastore(story)
    story.written(serving, b"y", b"2")  # a master is not needed for that
    recover(story)
    story.wait(lambda: story.cluster.committed_row("zone", 0) is not None, "a row")

    row = story.row
    assert row.version > before.version + RECOVERY_GAP
    assert row.term == row.version
    assert set(row.voters) == set(before.voters)
    story.come_to_rest()
    assert story.primary == serving
    assert (story.read(serving, b"x"), story.read(serving, b"y")) == (b"1", b"2")

    def is_over() -> bool:
        record = story.cluster.metastore.value(ZoneKey("zone"))
        return isinstance(record, ZoneRecord) and not record.recovering

    story.wait(is_over, "the end of rebuilding")


def test_all_agents_have_restarted_and_know_their_zones_from_disk() -> None:
    story = Scenario()
    serving = story.primary
    story.written(serving, b"x", b"1")
    names = list(story.cluster.agents)

    lose_metastore(story)
    for name in names:
        story.crash(name, machine_too=True)
    for name in names:
        story.start(name)
    recover(story)

    assert story.read(story.wait_for_primary(), b"x") == b"1"
    story.come_to_rest()


def test_a_quorum_suffices_and_the_agent_that_was_away_is_taken_in_when_it_returns() -> None:
    story = Scenario()
    away = story.primary
    story.written(away, b"x", b"1")

    story.crash(away)
    lose_metastore(story)
    recover(story)

    new = story.wait_for_primary(away)
    assert story.read(new, b"x") == b"1"
    story.written(new, b"x", b"2")
    story.start(away)
    story.come_to_rest()
    assert story.read(story.primary, b"x") == b"2"


def _lost_twice() -> None:
    """Of the first rebuilding only one agent is told, which is away at the second."""
    story = Scenario()
    away, *others = story.primary, *story.backups()
    story.written(away, b"x", b"1")

    def judge(link: Link, sender: Process, receiver: Process, message: object) -> int:
        is_told = isinstance(message, ZoneTable) or sender.name == away
        return 0 if is_told and receiver.name in others else 1

    lose_metastore(story)
    story.cluster.network.judge = judge
    recover(story)
    story.wait(lambda: story.copy(away).version > RECOVERY_GAP, "one is told")
    rebuilt = story.row
    story.crash(away)
    story.cluster.network.judge = None
    lose_metastore(story)
    recover(story)

    new = story.wait_for_primary(away)
    assert story.row.version > rebuilt.version + RECOVERY_GAP // 2
    assert story.read(new, b"x") == b"1"
    story.written(new, b"x", b"2")
    story.start(away)
    story.come_to_rest()
    assert story.read(story.primary, b"x") == b"2"


def test_a_metastore_that_is_lost_twice_is_rebuilt_above_what_only_one_agent_was_told() -> None:
    _lost_twice()


def test_rows_rebuilt_as_if_the_metastore_was_lost_once_are_noticed() -> None:
    with rebuilt_whatever_the_mastership(), pytest.raises((AssertionError, InvariantError)):
        _lost_twice()


def _lose_and_rebuild_until_not_believed(story: Scenario, away: str) -> None:
    """So often that the number is beyond what `away` believes by itself."""
    known = story.cluster.disks[away].master_term
    while story.cluster.masters[-1].term <= known + TERMS_BELIEVED:
        lose_metastore(story)
        master = recover(story)

        def is_led(master: MasterProcess = master) -> bool:
            others = [disk for name, disk in story.cluster.disks.items() if name != away]
            obeyed = all(disk.master_term == master.term for disk in others)
            return obeyed and master.master is not None and master.master.has_recovered

        story.wait(is_led, "the others obey, and rows are there")


def _is_registered(story: Scenario, name: str) -> bool:
    is_newest = story.agent(name).disk.master_term == story.cluster.masters[-1].term
    return is_newest and story.agent(name).core.registered


def test_an_agent_that_was_down_through_two_losses_hears_from_others_and_is_taken_in() -> None:
    story = Scenario()
    away = story.primary
    story.written(away, b"x", b"1")
    story.crash(away)
    story.written(story.wait_for_primary(away), b"x", b"2")
    _lose_and_rebuild_until_not_believed(story, away)

    story.start(away)
    story.wait(lambda: _is_registered(story, away), "it obeys the newest master", 3_000)

    story.come_to_rest()
    assert story.read(story.primary, b"x") == b"2"


def test_an_agent_that_only_other_agents_reached_meanwhile_hears_from_them_anew() -> None:
    """Its links to them stand all the time: what they told with these is old."""
    story = Scenario()
    away = story.backups()[0]
    later = [f"m{number}" for number in range(1, 9)]
    for name in later:
        story.cluster.network.cut(name, away)
        story.cluster.network.cut(away, name)
    _lose_and_rebuild_until_not_believed(story, away)

    for name in later:
        story.cluster.network.heal(name, away)
        story.cluster.network.heal(away, name)
    story.wait(lambda: _is_registered(story, away), "it obeys the newest master", 3_000)

    story.come_to_rest()


def test_a_number_that_no_agent_has_obeyed_is_believed_by_none() -> None:
    story = Scenario()
    right = story.cluster.masters[-1]
    story.cluster.metastore.acquire_master_term(right.term + TERMS_BELIEVED)
    wrong = story.cluster.add_master()
    story.run(10_000)

    assert not wrong.links
    assert {disk.master_term for disk in story.cluster.disks.values()} == {right.term}


def test_without_a_quorum_nothing_serves_and_the_missing_are_named_until_one_returns() -> None:
    without_a_quorum_nothing_serves_and_the_missing_are_named()


def test_a_row_rebuilt_without_a_quorum_is_noticed() -> None:
    with rebuilt_without_a_quorum(), pytest.raises((AssertionError, InvariantError)):
        without_a_quorum_nothing_serves_and_the_missing_are_named()


def test_rebuilding_waits_for_an_agent_that_refuses_its_zone() -> None:
    rebuilding_waits_for_an_agent_that_refuses_its_zone()


def _a_change_of_voters_does_not_reach_two_of_three() -> None:
    """A voter is to be replaced.  The two backups are told no row of that; a write is acknowledged
    by others than the one that stays.  Then the two are all that is there."""
    story = Scenario()
    primary, stays, leaves = story.primary, *story.backups()
    story.written(primary, b"x", b"1")
    story.add("a4")

    def judge(link: Link, sender: Process, receiver: Process, message: object) -> int:
        return 0 if isinstance(message, ZoneTable) and receiver.name in (stays, leaves) else 1

    story.cluster.network.judge = judge
    story.drain(leaves)
    story.wait(lambda: story.row.active is not None, "a migration is under way")
    story.run(3_000)
    story.cut(stays, off=(primary, "a4"))
    story.written(primary, b"x", b"2")
    story.crash(primary)
    story.crash("a4")
    lose_metastore(story)
    story.cluster.network.judge = None
    story.heal()
    recover(story)

    assert story.read(story.wait_for_primary(primary, "a4"), b"x") == b"2"
    story.start(primary)
    story.start("a4")
    story.come_to_rest()


def test_a_change_of_voters_that_does_not_reach_a_quorum_of_them_loses_no_write() -> None:
    _a_change_of_voters_does_not_reach_two_of_three()


def test_a_change_of_voters_that_no_quorum_of_them_has_is_noticed() -> None:
    with changes_of_voters_unheard_of(), pytest.raises((AssertionError, InvariantError)):
        _a_change_of_voters_does_not_reach_two_of_three()


def test_a_migration_under_way_is_given_up_and_its_newcomer_is_no_voter() -> None:
    story = Scenario()
    serving = story.primary
    story.written(serving, b"x", b"1")
    before = story.row
    story.add("a4")
    story.drain(story.backups()[-1])
    story.wait(lambda: story.row.active is not None, "a migration is under way")

    lose_metastore(story)
    recover(story)
    story.wait(lambda: story.cluster.committed_row("zone", 0) is not None, "a row")

    assert set(story.row.voters) == set(before.voters)
    assert story.read(story.wait_for_primary(), b"x") == b"1"
    story.come_to_rest()


def test_a_copy_that_is_left_of_both_sides_of_a_migration_is_served() -> None:
    """A voter that is down is to be replaced; it and the newcomer lose what they had.  Of all three
    voters one is no quorum, but it is one of each side."""
    story = Scenario(agents=2, replicas=2, in_memory=True)
    left, (lost,) = story.primary, story.backups()
    story.written(left, b"x", b"1")
    story.add("a3")
    story.cluster.network.judge = lambda link, sender, receiver, message: (
        0 if isinstance(message, Sync) and receiver.name == "a3" else 1
    )
    story.crash(lost)
    story.wait(lambda: 0 in story.zone("a3").copies, "the newcomer has its row")
    assert story.row.active is not None

    story.cluster.masters[-1].die()
    story.cluster.metastore.lose(story.cluster.disks[left].master_term)
    story.crash("a3")
    story.start("a3")
    story.start(lost)
    story.cluster.network.judge = None
    story.cluster.add_master()

    assert story.read(story.wait_for_primary(), b"x") == b"1"
    story.come_to_rest()


def _the_newcomer_is_lost_with_the_metastore(story: Scenario, source: str) -> None:
    """What a2 had been sent of the only copy is gone, too."""
    story.cluster.masters[-1].die()
    story.cluster.metastore.lose(story.cluster.disks[source].master_term)
    story.crash("a2")
    story.cluster.wipe("a2")
    story.start("a2")
    story.cluster.network.judge = None
    story.cluster.add_master()


def _the_only_copy_moves(in_memory: bool, lost: type[Message]) -> tuple[Scenario, str]:
    """To a2; the first message of this kind, and those that follow, do not come through."""
    story = Scenario(agents=1, replicas=1, in_memory=in_memory)
    source = story.primary
    story.written(source, b"x", b"1")
    story.add("a2")
    said: list[Message] = []

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        if isinstance(message, lost):
            said.append(message)
        return 0 if isinstance(message, lost) else 1

    story.cluster.network.judge = judge
    story.drain(source)
    story.wait(lambda: bool(said), f"{lost.__name__} is on its way", step_ms=1)
    return story, source


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("lost", [Sync, CaughtUp, Freeze], ids=lambda kind: kind.__name__)
def test_an_only_copy_that_has_not_frozen_is_served_again_where_its_newcomer_is_lost_too(
    lost: type[Message], in_memory: bool
) -> None:
    story, source = _the_only_copy_moves(in_memory, lost)
    _the_newcomer_is_lost_with_the_metastore(story, source)

    assert story.read(story.wait_for_primary(), b"x") == b"1"
    story.come_to_rest()


def _an_only_copy_has_frozen_and_its_newcomer_served() -> None:
    """The source has not heard of it; the newcomer alone has what was answered since."""
    story, source = _the_only_copy_moves(False, PreparedRow)
    source_knows = story.zone(source).table[0]
    story.wait(lambda: bool((role := story.role(source)) and role.frozen), "it has frozen")
    story.cluster.network.judge = lambda link, sender, receiver, message: (
        0 if isinstance(message, ZoneTable) and receiver.name == source else 1
    )
    story.written(story.wait_for_primary(source), b"x", b"2")
    assert story.zone(source).table[0] == source_knows
    _the_newcomer_is_lost_with_the_metastore(story, source)
    story.run(10_000)

    row = story.cluster.committed_row("zone", 0)
    assert (row, story.primary) == (None, ""), "what was answered since is with nobody"


def test_an_only_copy_that_has_frozen_does_not_know_what_its_newcomer_answered() -> None:
    _an_only_copy_has_frozen_and_its_newcomer_served()


def test_an_only_copy_that_is_believed_though_it_has_frozen_is_noticed() -> None:
    with believed_though_frozen(), pytest.raises((AssertionError, InvariantError)):
        _an_only_copy_has_frozen_and_its_newcomer_served()


def _the_only_copy_ends_while_it_moves_and_its_row_is_rebuilt() -> None:
    """The newcomer has none of the only copy's rows; nobody but it is left."""
    story = Scenario(agents=1, replicas=1, in_memory=True)
    only = story.primary
    story.written(only, b"x", b"1")
    store = story.row.voters[0].store
    story.add("a2")

    def judge(link: Link, sender: Process, receiver: Process, message: object) -> int:
        return 0 if isinstance(message, Sync) else 1

    story.cluster.network.judge = judge
    story.drain(only)
    story.wait(lambda: story.row.active is not None, "a migration is under way")
    story.wait(lambda: 0 in story.zone("a2").copies, "the newcomer has its row")
    lose_metastore(story)
    recover(story)
    story.wait(lambda: story.cluster.committed_row("zone", 0) is not None, "a row")
    story.crash(only)
    story.start(only)
    story.cluster.network.judge = None
    story.run(10_000)

    assert story.primary == "", f"{story.primary} serves without what {only} had answered"
    assert [voter.store for voter in story.row.voters] == [store]


def test_where_all_that_have_a_write_are_gone_before_a_rebuilt_row_is_served_nobody_serves() -> (
    None
):
    who_is_left_lacks_what_was_answered()


def test_a_rebuilt_row_that_does_not_say_that_both_sides_vote_is_noticed() -> None:
    with both_sides_vote_as_one(), pytest.raises((AssertionError, InvariantError)):
        who_is_left_lacks_what_was_answered()


def test_a_rebuilt_row_that_is_lost_again_before_it_is_served_says_again_that_both_sides_vote() -> (
    None
):
    rebuilt = Rebuilt()
    story, first = rebuilt.story, rebuilt.row
    assert first is not None
    assert first.sets == (rebuilt.before, rebuilt.after)
    told = (rebuilt.primary, rebuilt.stays)
    story.wait(lambda: all(story.zone(n).table[0] == first for n in told), "a quorum is told")
    rebuilt.lose_metastore()
    story.cluster.add_master()
    story.wait(lambda: rebuilt.row is not None, "a row is rebuilt again")
    assert story.row.version > first.version + RECOVERY_GAP // 2
    assert story.row.sets == first.sets

    rebuilt.lose_stores(rebuilt.primary, rebuilt.stays)
    rebuilt.let_through()
    story.run(20_000)
    assert story.primary == "", f"{story.primary} serves and lacks what was answered"


def test_a_rebuilt_row_has_one_set_of_voters_once_it_is_served_and_before_anything_moves() -> None:
    rebuilt = Rebuilt()
    story = rebuilt.story
    story.run(5_000)
    assert story.row.sets, "nobody has served it"
    rebuilt.let_through()
    rows = [story.row]

    def is_moving() -> bool:
        if story.row != rows[-1]:
            rows.append(story.row)
        return story.row.active is not None

    story.wait(is_moving, "its surplus is taken away", step_ms=1)
    term = next(row for row in rows if not row.sets).term
    assert all(row.term <= term for row in rows if row.sets)
    assert {*rows[0].voters} == {*rows[-1].voters}
    assert story.read(story.wait_for_primary(), b"x") == b"2"
    story.come_to_rest()


def test_a_rebuilt_row_that_loses_one_store_before_it_is_served_is_served() -> None:
    rebuilt = Rebuilt()
    rebuilt.lose_stores(rebuilt.primary)
    rebuilt.let_through()

    assert rebuilt.story.read(rebuilt.story.wait_for_primary(), b"x") == b"2"
    rebuilt.story.come_to_rest()


def test_where_the_only_copy_ends_before_its_rebuilt_row_is_served_nobody_serves() -> None:
    _the_only_copy_ends_while_it_moves_and_its_row_is_rebuilt()


def test_a_newcomer_that_votes_in_a_rebuilt_row_without_what_was_answered_is_noticed() -> None:
    with newcomers_vote_when_rebuilt(), pytest.raises((AssertionError, InvariantError)):
        _the_only_copy_ends_while_it_moves_and_its_row_is_rebuilt()
