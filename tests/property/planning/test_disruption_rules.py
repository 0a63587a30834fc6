"""Any rows, any agents: whoever may restart or be evicted leaves every partition its majority."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.facts.partition_row import Migration, MigrationKind, PartitionRow, majority
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.planning.absence.disruption import AgentNow, ZoneNow, disruption

NAMES = [f"agent-{at}" for at in range(1, 8)]


def registration(name: str, store: str, incarnation: int, draining: bool) -> NodeRecord:
    return NodeRecord(name, store, incarnation, "h", 1, "h", draining=draining)


@st.composite
def agents(draw: st.DrawFn) -> list[AgentNow]:
    """All well in half of the cases; else mostly registered, online, with the first store."""
    count = draw(st.integers(1, 7))
    if draw(st.booleans()):
        well = [registration(name, "first", 1, False) for name in NAMES[:count]]
        return [AgentNow(record.name, record, online=True) for record in well]
    made: list[AgentNow] = []
    for name in NAMES[:count]:
        store = draw(st.sampled_from(["first", "first", "first", "second"]))
        record = registration(
            name, store, draw(st.sampled_from([1, 1, 1, 2])), draw(st.integers(0, 4)) == 0
        )
        is_known = draw(st.integers(0, 9)) > 0
        online = is_known and draw(st.integers(0, 4)) > 0
        gone = not online and draw(st.booleans())
        made.append(AgentNow(name, record if is_known else None, online, gone))
    return made


def voter(name: str, persistent: bool) -> Voter:
    return Voter(name, "first" if persistent else "first.1")


@st.composite
def rows(draw: st.DrawFn, partition: int, persistent: bool, there: list[str]) -> PartitionRow:
    """Any voters, any of them owners in any order, perhaps a migration with one newcomer."""
    names = draw(st.permutations(there))[: draw(st.integers(1, 5))]
    voters = tuple(voter(name, persistent) for name in names)
    is_well = draw(st.booleans())
    owners = [name for name in names if is_well or draw(st.integers(0, 4)) > 0]
    replicas: tuple[str | None, ...] = tuple(owners) or (None,)
    primary = None
    if owners:
        primary = Holder(owners[0], voter(owners[0], persistent).store, 1)
    active = None
    others = [name for name in there if name not in names]
    kind = draw(st.sampled_from(["none", "none", "move", "drop"]))
    if kind == "move" and others:
        newcomer = voter(others[0], persistent)
        after = (*voters[: len(voters) - draw(st.integers(0, 1))], newcomer)
        destination = Holder(newcomer.node, newcomer.store, 1)
        active = Migration("m", MigrationKind.MOVE, None, destination, replicas, after)
    elif kind == "drop" and len(voters) > 1:
        active = Migration("m", MigrationKind.DROP, names[-1], None, replicas, voters[:-1])
    return PartitionRow(partition, 9, 3, primary, replicas, voters, active)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[AgentNow], list[ZoneNow]]:
    members = draw(agents())
    there = [agent.name for agent in members]
    if draw(st.integers(0, 3)) == 0:
        there.append("stranger")  # in a row, and not among the agents
    zones: list[ZoneNow] = []
    for name in ("library", "sessions")[: draw(st.integers(1, 2))]:
        persistent = draw(st.integers(0, 2)) > 0
        made = [draw(rows(p, persistent, there)) for p in range(draw(st.integers(0, 3)))]
        unserved = [row.partition for row in made if draw(st.integers(0, 9)) == 0]
        lacks_rows = draw(st.integers(0, 19)) == 0
        wanted = [draw(st.permutations(there))[: draw(st.integers(0, 3))] for _ in made]
        zones.append(
            ZoneNow(
                name,
                persistent,
                3,
                made,
                unserved,
                lacks_rows=lacks_rows,
                wanted=draw(st.sampled_from([(), tuple(wanted)])),
                joining=draw(st.sets(st.sampled_from(there), max_size=2)),
            )
        )
    return members, zones


def sets_of(row: PartitionRow) -> list[tuple[Voter, ...]]:
    return [row.voters] if row.active is None else [row.voters, row.active.voters]


def counts(each: Voter, row: PartitionRow, zone: ZoneNow, members: list[AgentNow]) -> bool:
    """Whether it votes, is online with that very store, and holds everything."""
    for agent in members:
        if agent.name == each.node and agent.online and agent.record is not None:
            return agent.record.zone_store(zone.persistent) == each.store and (
                each.node in row.replicas
            )
    return False


def has_majority(
    row: PartitionRow, zone: ZoneNow, members: list[AgentNow], without: tuple[str, ...] = ()
) -> bool:
    """By definition, in all sets of voters."""
    return all(
        len([v for v in voters if v.node not in without and counts(v, row, zone, members)])
        >= majority(len(voters))
        for voters in sets_of(row)
    )


def votes(name: str, row: PartitionRow, zone: ZoneNow, members: list[AgentNow]) -> bool:
    """Whether the row names the agent, which has no other store than that as far as is known."""
    named = [v for voters in sets_of(row) for v in voters if v.node == name]
    record = next((agent.record for agent in members if agent.name == name), None)
    return any(record is None or record.zone_store(zone.persistent) == v.store for v in named)


CASES = settings(derandomize=True, max_examples=400, deadline=None)


@CASES
@given(clusters())
def test_who_may_restart_leaves_a_majority_everywhere_and_nobody_waits_for_nothing(
    case: tuple[list[AgentNow], list[ZoneNow]],
) -> None:
    members, zones = case
    now = disruption(members, zones)
    lacks_rows = any(zone.lacks_rows for zone in zones)
    for agent in members:
        is_safe = not lacks_rows
        for zone in zones:
            for row in zone.rows:
                if row.destination is not None and row.destination.node == agent.name:
                    is_safe = False
                if votes(agent.name, row, zone, members):
                    is_served = row.partition not in zone.unserved
                    is_safe &= is_served and has_majority(row, zone, members, (agent.name,))
        assert now.of(agent.name).may_restart == (is_safe or agent.gone), now.of(agent.name)


@CASES
@given(clusters())
def test_as_many_as_the_budget_says_may_be_away_whoever_they_are(
    case: tuple[list[AgentNow], list[ZoneNow]],
) -> None:
    members, zones = case
    now = disruption(members, zones)
    named = {v.node for z in zones for row in z.rows for each in sets_of(row) for v in each}
    assert set(now.protected) == named
    free = [agent.name for agent in members if agent.name not in now.limited]
    for away in combinations(now.limited, min(now.unavailable_max, len(now.limited))):
        for zone in zones:
            for row in zone.rows:
                some = any(votes(v.node, row, zone, members) for v in row.voters)
                if some and row.partition in zone.unserved:
                    assert now.unavailable_max == 0
                if some and now.unavailable_max:
                    assert has_majority(row, zone, members, (*away, *free))
    if any(zone.lacks_rows for zone in zones):
        assert now.unavailable_max == 0
    assert (now.no_eviction is None) == (now.unavailable_max > 0), now.no_eviction


@CASES
@given(clusters())
def test_the_budget_is_no_smaller_than_needed(
    case: tuple[list[AgentNow], list[ZoneNow]],
) -> None:
    members, zones = case
    now = disruption(members, zones)
    if any(zone.lacks_rows for zone in zones) or now.unavailable_max >= len(now.limited):
        return
    one_more = list(combinations(now.limited, now.unavailable_max + 1))
    assert any(
        row.partition in zone.unserved or not has_majority(row, zone, members, away)
        for zone in zones
        for row in zone.rows
        for away in one_more
    )


@CASES
@given(clusters(), st.sets(st.sampled_from(NAMES), max_size=2))
def test_the_next_waits_for_those_before_and_these_never_for_themselves(
    case: tuple[list[AgentNow], list[ZoneNow]], restarted: set[str]
) -> None:
    members, zones = case
    alone, now = disruption(members, zones), disruption(members, zones, restarted)
    by_name = {agent.name: agent for agent in members}
    for agent in members:
        others = [name for name in restarted if name != agent.name and name in by_name]
        is_whole = all(
            by_name[other].online
            and all(
                counts(v, row, zone, members)
                for zone in zones
                for row in zone.rows
                for each in sets_of(row)
                for v in each
                if v.node == other
            )
            for other in others
        )
        if now.of(agent.name).may_restart and not agent.gone:
            assert is_whole
        if not others:
            assert now.of(agent.name).may_restart == alone.of(agent.name).may_restart or (
                restarted - by_name.keys()
            )
        assert alone.of(agent.name).may_restart or not now.of(agent.name).may_restart


@CASES
@given(clusters())
def test_the_next_waits_for_each_copy_that_a_joining_agent_can_take(
    case: tuple[list[AgentNow], list[ZoneNow]],
) -> None:
    members, zones = case
    there = {agent.name for agent in members if agent.online and agent.record is not None}
    now = disruption(members, zones, [agent.name for agent in members])
    for zone in zones:
        for row in zone.rows:
            names = {voter.node for voter in row.voters}
            takers = there
            if zone.wanted:
                takers = {*zone.wanted[row.partition], *zone.joining} & (there | names)
            if len(names) < min(zone.replicas, len(takers)) and len(members) > 1:
                assert not any(
                    now.of(agent.name).may_restart for agent in members if not agent.gone
                )


@CASES
@given(clusters())
def test_agents_with_most_primaries_come_last(
    case: tuple[list[AgentNow], list[ZoneNow]],
) -> None:
    members, zones = case
    order = disruption(members, zones).agents
    assert sorted(each.name for each in order) == sorted(agent.name for agent in members)
    primaries = {
        agent.name: sum(row.replicas[0] == agent.name for zone in zones for row in zone.rows)
        for agent in members
    }
    assert [each.primaries for each in order] == sorted(primaries.values())
    assert all(each.primaries == primaries[each.name] for each in order)
