"""Who may restart, who may go, how many may be away: story by story, with the sentences told."""

import msgspec

from quorate.facts.partition_row import Link, Migration, MigrationKind, PartitionRow, Reset
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.planning.absence.disruption import (
    AgentNow,
    EvictionBlock,
    NoEviction,
    ZoneNow,
    disruption,
)


def agent(name: str, *, online: bool = True, gone: bool = False, draining: bool = False,
          store: str = "first") -> AgentNow:  # fmt: skip
    record = NodeRecord(name, store, 1, "h", 1, "h", draining=draining)
    return AgentNow(name, record, online, gone)


def row(partition: int, voters: str, owners: str | None = None) -> PartitionRow:
    """Voters and owners by letter; the first owner is primary."""
    named = voters if owners is None else owners
    return PartitionRow(
        partition, 5, 3, Holder(named[0], "first", 1), tuple(named),
        tuple(Voter(name, "first") for name in voters),
    )  # fmt: skip


def zone(*rows: PartitionRow, replicas: int = 3, unserved: tuple[int, ...] = ()) -> ZoneNow:
    return ZoneNow("sessions", True, replicas, rows, unserved)


THREE = [agent(name) for name in "abc"]


def test_of_three_whole_copies_each_may_restart_and_one_may_be_away() -> None:
    now = disruption(THREE, [zone(row(0, "abc"), row(1, "abc"), row(2, "cab"))])

    assert [(each.name, each.primaries) for each in now.agents] == [("b", 0), ("c", 1), ("a", 2)]
    assert all(each.may_restart for each in now.agents)
    assert (now.protected, now.unavailable_max) == (("a", "b", "c"), 1)


def test_beside_one_that_is_away_nobody_restarts() -> None:
    members = [agent("a"), agent("b"), agent("c", online=False)]
    now = disruption(members, [zone(row(0, "abc", "ab"), row(1, "abc", "ba"))])

    assert now.unavailable_max == 0
    assert now.of("a").restart_waits_for == (
        "agent a: partition 0 of Zone sessions would keep 1 of 3 voters up to date, "
        "and needs 2: c is offline; and 1 more"
    )


def test_beside_one_that_catches_up_nobody_restarts_but_that_one() -> None:
    now = disruption(THREE, [zone(row(0, "abc", "ab"))])

    assert "c is catching up" in now.of("b").restart_waits_for
    assert now.of("c").may_restart


def test_of_a_rebuilt_row_a_majority_of_each_set_of_voters_is_to_stay() -> None:
    both = msgspec.structs.replace(row(0, "abc"), sets=(row(0, "ab").voters, row(0, "bc").voters))
    now = disruption(THREE, [zone(both)])

    assert not any(each.may_restart for each in now.agents)
    assert "would keep 1 of 2 voters up to date" in now.of("a").restart_waits_for


def test_one_whose_process_is_gone_may_be_started_anew_whatever_is_missing() -> None:
    members = [agent("a"), agent("b", online=False, gone=True), agent("c", online=False)]
    now = disruption(members, [zone(row(0, "abc", "a"))])

    assert now.of("b").may_restart
    assert not now.of("c").may_restart, "nobody knows that it does not run"


def test_while_a_migration_is_under_way_both_sets_of_voters_count() -> None:
    after = tuple(Voter(name, "first") for name in "abd")
    newcomer = Holder("d", "first", 1)
    moving = Migration("m", MigrationKind.MOVE, "c", newcomer, ("a", "b", "d"), after)
    joint = PartitionRow(
        0, 5, 3, Holder("a", "first", 1), ("a", "b", "c"),
        tuple(Voter(name, "first") for name in "abc"), moving,
    )  # fmt: skip
    now = disruption([*THREE, agent("d")], [zone(joint)])

    assert [each.name for each in now.agents if each.may_restart] == ["c"]
    assert "needs 2: d is catching up" in now.of("b").restart_waits_for
    assert "partition 0 of Zone sessions is being moved to it" in now.of("d").restart_waits_for
    assert (now.protected, now.unavailable_max) == (("a", "b", "c", "d"), 0)


def test_a_partition_that_is_not_served_holds_all_its_voters() -> None:
    now = disruption([*THREE, agent("d")], [zone(row(0, "abc"), unserved=(0,))])

    assert now.of("a").restart_waits_for == "agent a: partition 0 of Zone sessions is not served"
    assert now.of("d").may_restart
    assert now.unavailable_max == 0


def test_the_partition_with_the_least_to_spare_sets_the_budget() -> None:
    members = [agent(name) for name in "abcde"]

    assert disruption(members, [zone(row(0, "abcde"))]).unavailable_max == 2
    for rows in ((row(0, "abcde"), row(1, "abc")), (row(0, "abc"), row(1, "abcde"))):
        assert disruption(members, [zone(*rows)]).unavailable_max == 1


def test_who_is_away_is_not_counted_twice() -> None:
    five = zone(row(0, "abcde", "abcd"), replicas=5)
    lost = [agent(name, online=name != "e") for name in "abcde"]
    now = disruption(lost, [five])

    assert (now.protected, now.away, now.limited) == (tuple("abcde"), ("e",), tuple("abcd"))
    assert now.unavailable_max == 1
    back = disruption([agent(name) for name in "abcde"], [five])
    assert (back.limited, back.unavailable_max) == (tuple("abcde"), 1), "it is catching up"
    three = disruption([*THREE[:2], agent("c", online=False)], [zone(row(0, "abc", "ab"))])
    assert (three.limited, three.unavailable_max) == (tuple("abc"), 0)


def test_a_restart_in_memory_costs_the_copy() -> None:
    """The next one waits until the copy is made anew, though no store is missing on any disk."""
    restarted = NodeRecord("c", "first", 2, "h", 1, "h")
    voters = tuple(Voter(name, "first.1") for name in "abc")
    rows = [PartitionRow(0, 5, 3, Holder("a", "first.1", 1), ("a", "b"), voters)]
    members = [agent("a"), agent("b"), AgentNow("c", restarted, online=True)]
    now = disruption(members, [ZoneNow("sessions", False, 3, rows)], ["c"])

    assert "c is offline" in now.of("a").restart_waits_for


def test_the_next_waits_until_the_one_before_has_caught_up() -> None:
    members = [agent(name) for name in "abcde"]
    now = disruption(members, [zone(row(0, "abcde", "abcd"), replicas=5)], ["e"])

    assert now.of("a").restart_waits_for == (
        "agent a: waiting until agent e, restarted before it, "
        "has caught up in partition 0 of Zone sessions"
    )
    assert now.of("e").may_restart, "it may be what its restart broke"
    back = disruption(members, [zone(row(0, "abcde"), replicas=5)], ["e"])
    assert back.of("a").may_restart


def test_the_next_waits_for_copies_that_are_still_to_be_made() -> None:
    members = [agent(name) for name in "abcd"]
    rows = [row(0, "abc")]
    now = disruption(members, [zone(*rows, replicas=4)], ["d"])

    assert now.of("a").restart_waits_for == (
        "agent a: waiting until partition 0 of Zone sessions has all its copies again"
    )
    assert disruption(members, [zone(*rows, replicas=4)]).of("a").may_restart


def test_copies_that_nobody_can_take_are_not_waited_for() -> None:
    members = [agent(name) for name in "abcde"]

    def may_follow(wanted: str, present: list[AgentNow] = members) -> bool:
        asked = msgspec.structs.replace(zone(row(0, "abc"), replicas=5), wanted=(tuple(wanted),))
        return disruption(present, [asked], ["e"]).of("a").may_restart

    assert may_follow("abc")
    assert not may_follow("abcd"), "d is to get one"
    assert may_follow("abcd", [*members[:3], agent("d", online=False), members[4]])
    assert may_follow("ade"), "its leavers hold the copies until then"
    assert not disruption(members, [zone(row(0, "ab"), replicas=3)]).of("a").may_restart


def test_a_copy_in_memory_that_a_reset_left_is_kept_until_it_is_let_go() -> None:
    memory = Voter("b", "first.1")
    after = PartitionRow(
        0, 9, 9, Holder("a", "first.1", 1), ("a",), (Voter("a", "first.1"),),
        reset=Reset(9, (memory,), (Link(9, (Voter("a", "first.1"), memory), 1),)),
    )  # fmt: skip
    asked = ZoneNow("sessions", False, 1, (after,))

    now = disruption(THREE, [asked])
    on_disk = disruption(THREE, [ZoneNow("sessions", True, 1, (left_on_disk(),))])

    assert now.protected == ("a", "b")
    assert now.of("b").restart_waits_for == (
        "agent b: a reset left it a copy of partition 0 of Zone sessions in memory"
    )
    assert now.of("c").may_restart
    assert now.unavailable_max == 0, "nor is it evicted"
    assert on_disk.of("b").may_restart, "its disk stays"
    assert on_disk.protected == ("a", "b")


def left_on_disk() -> PartitionRow:
    """A partition that was reset from b to a."""
    voters = (Voter("a", "first"), Voter("b", "first"))
    return PartitionRow(
        0, 9, 9, Holder("a", "first", 1), ("a",), voters[:1],
        reset=Reset(9, voters[1:], (Link(9, voters, 1),)),
    )  # fmt: skip


def test_copies_that_wait_for_the_scale_up_timer_are_waited_for() -> None:
    members = [agent(name) for name in "abcde"]
    asked = msgspec.structs.replace(zone(row(0, "abcd"), replicas=5), wanted=(tuple("abcd"),))

    def may_follow(joining: str) -> bool:
        world = [msgspec.structs.replace(asked, joining={joining})]
        return disruption(members, world, ["e"]).of("a").may_restart

    assert disruption(members, [asked], ["e"]).of("a").may_restart
    assert not may_follow("e")
    assert may_follow("z"), "it is not there"


def test_the_only_copy_is_never_taken_away() -> None:
    now = disruption([agent("a"), agent("b")], [zone(row(0, "a"), replicas=1)])

    assert now.of("a").restart_waits_for == (
        "agent a: partition 0 of Zone sessions would keep 0 of 1 voters up to date, and needs 1"
    )
    assert now.of("b").may_restart
    assert (now.protected, now.unavailable_max) == (("a",), 0)


def test_while_rows_are_rebuilt_nobody_restarts() -> None:
    lost = ZoneNow("sessions", True, 3, (), lacks_rows=True)
    now = disruption([agent("a"), agent("b", draining=True)], [lost])

    assert now.unavailable_max == 0
    for each in now.agents:
        told = f"agent {each.name}: rows of Zone sessions are being rebuilt from the agents' data"
        assert each.restart_waits_for == told


def test_without_zones_all_may_be_away() -> None:
    now = disruption(THREE, [])

    assert (now.protected, now.unavailable_max) == ((), 3)
    assert all(each.may_restart for each in now.agents)


def test_why_nobody_may_be_evicted_names_who_is_away_and_not_each_partition() -> None:
    members = [agent("a"), agent("b"), agent("c", online=False)]
    rows = [row(0, "abc", "ab"), row(1, "abc", "ba")]

    found = disruption(members, [zone(*rows)]).no_eviction

    assert found == NoEviction(
        EvictionBlock.AGENTS_AWAY,
        "offline: c; partitions of Zone sessions need all their other voters",
        ("c",),
    )
    assert disruption(members, [zone(rows[0])]).no_eviction == found
    others = [*THREE[:2], agent("c")]
    found = disruption(others, [zone(rows[0])]).no_eviction
    assert found is not None
    assert (found.reason, found.agents) == (EvictionBlock.CATCHING_UP, ("c",))


def test_somebody_may_be_evicted_beside_what_is_missing_where_others_are_enough() -> None:
    members = [*THREE, agent("d"), agent("e", online=False)]

    assert disruption(THREE, [zone(row(0, "abc"))]).no_eviction is None
    assert disruption(members, [zone(row(0, "abcde", "abcd"), replicas=5)]).no_eviction is None
    assert disruption(THREE, [zone()]).no_eviction is None


def test_what_a_person_has_to_change_is_told_before_what_passes() -> None:
    members = [agent("a"), agent("b"), agent("c", online=False)]
    pairs = ZoneNow("carts", True, 2, [row(0, "ab")])

    found = disruption(members, [zone(row(0, "abc", "ab")), pairs]).no_eviction

    assert found is not None
    assert found.reason == EvictionBlock.TOO_FEW_COPIES
    assert found.message == ("Zone carts has one or two copies, and needs each of them")


def test_other_reasons_why_nobody_may_be_evicted() -> None:
    def reason(*zones: ZoneNow) -> str:
        found = disruption(THREE, zones).no_eviction
        return f"{found.reason}: {found.message}" if found is not None else ""

    unserved = reason(zone(row(0, "abc"), unserved=(0,)), ZoneNow("tea", True, 3, [row(1, "abc")]))
    assert unserved == "NotServed: partitions of Zone sessions are not served"
    assert reason(zone(row(0, "ab"))).startswith("CopiesMissing: partitions of Zone sessions lack")
    rebuilt = reason(ZoneNow("sessions", True, 3, [], lacks_rows=True))
    assert rebuilt.startswith("RowsRebuilt: rows of Zone sessions are being rebuilt")
