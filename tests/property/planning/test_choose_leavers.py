"""Who leaves when there are to be fewer agents, judged beside every other choice."""

from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorate.facts.partition_row import majority
from quorate.facts.zone import ZoneRecord
from quorate.planning.absence.choose_leavers import NEARLY_BYTES, AgentLoad, choose_leavers
from quorate.protocol.master.disruption import cluster_load
from quorate_lone_master.world import LoneMaster

MOSTLY = st.sampled_from([True, True, True, True, False])
AWAY = AgentLoad("", online=False, bytes=9)
IN_ONE_DOMAIN = [AgentLoad("", failure_domain="north"), AgentLoad("", failure_domain="north")]
ANY = st.builds(
    AgentLoad,
    name=st.just(""),
    takes_part=MOSTLY,
    online=MOSTLY,
    draining=MOSTLY.map(lambda is_so: not is_so),
    failure_domain=st.sampled_from(["", "north", "south", "west"]),
    bytes=st.integers(0, 9),
    copies=st.integers(0, 3),
)


def named(agents: list[AgentLoad]) -> list[AgentLoad]:
    return [
        AgentLoad(
            f"agent-{at}", a.takes_part, a.online, a.draining, a.failure_domain, a.bytes, a.copies
        )
        for at, a in enumerate(agents)
    ]


def left(agents: list[AgentLoad], leavers: tuple[str, ...], copies: int) -> tuple[int, int]:
    """How many agents, and failure domains, are left to hold copies; more than asked for are no
    better."""
    there = [each for each in agents if each.name not in leavers and each.is_there]
    return min(len(there), copies), min(len({each.place for each in there}), copies)


@settings(derandomize=True, max_examples=250, deadline=None)
@example([*IN_ONE_DOMAIN, AWAY], 1, 2)
@given(st.lists(ANY, max_size=6), st.integers(0, 6), st.integers(1, 4))
def test_no_other_choice_leaves_more_agents_or_domains_for_the_copies(
    some: list[AgentLoad], count: int, copies: int
) -> None:
    agents = named(some)
    count = min(count, len(agents))
    chosen = choose_leavers(agents, count, copies)

    assert len({*chosen}) == count
    names = [each.name for each in agents]
    others = [left(agents, each, copies) for each in combinations(names, count)]
    assert left(agents, chosen, copies) == max(others)
    assert max(others) == (max(a for a, _ in others), max(d for _, d in others)), "no trade"


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 99), min_size=3, max_size=9), st.integers(1, 3), st.data())
def test_where_nothing_speaks_against_it_those_leave_that_hold_least(
    sizes: list[int], copies: int, data: st.DataObject
) -> None:
    held = [size << 30 for size in sizes]
    agents = [AgentLoad(f"agent-{at}", bytes=size, copies=1) for at, size in enumerate(held)]
    count = data.draw(st.integers(0, len(agents) - copies)) if len(agents) > copies else 0
    chosen = choose_leavers(agents, count, copies)

    nearly = max(NEARLY_BYTES, sum(held) / (len(held) - count) / 10)
    for at, least in zip(map(int, (name[6:] for name in chosen)), sorted(held), strict=False):
        assert held[at] <= least + nearly


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=3, max_size=3), st.data())
def test_failure_domains_that_each_hold_a_copy_of_all_shrink_alike(
    counts: list[int], data: st.DataObject
) -> None:
    """A domain of few agents holds as much as one of many: there each agent holds more."""
    agents = [
        AgentLoad(f"agent-{domain}{at}", failure_domain=str(domain), bytes=(1200 << 30) // count)
        for domain, count in enumerate(counts)
        for at in range(count)
    ]
    staying = data.draw(st.integers(3, len(agents)))
    chosen = choose_leavers(agents, len(agents) - staying, 3)

    rest = [sum(f"agent-{d}{a}" not in chosen for a in range(n)) for d, n in enumerate(counts)]
    assert min(rest) >= 1
    assert all(n == counts[d] or n >= max(rest) - 1 for d, n in enumerate(rest)), rest


def _assert_kept(world: LoneMaster, zone: ZoneRecord, away: int) -> None:
    """Every partition has a majority of its voters up to date, and all copies but those away."""
    nodes = world.master.zones[zone.uid].nodes
    for row in world.rows(zone).values():
        live = [name for name in row.owners if nodes.holder(name) is not None]
        whole = [voter for voter in row.voters if voter.node in live]
        assert len(whole) >= majority(len(row.voters)), row
        assert len(live) >= zone.replicas - away, row


@settings(derandomize=True, max_examples=15, deadline=None)
@given(
    st.integers(4, 8),
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.integers(1, 50), min_size=2, max_size=2),
    st.data(),
)
def test_all_that_leave_are_drained_at_once_and_no_copy_is_missing_meanwhile(
    count: int, replicas: int, is_one_away: bool, sizes: list[int], data: st.DataObject
) -> None:
    names = [f"agent-{at}" for at in range(count)]
    zones = [ZoneRecord(f"uid-{at}", f"zone-{at}", 8, replicas) for at in (1, 2)]
    world = LoneMaster(*zones, nodes=tuple(names))
    world.sizes = {zone.uid: size for zone, size in zip(zones, sizes, strict=True)}
    world.pass_time(61_000)  # a minute, after which sizes are asked for
    if is_one_away and replicas == 3:
        world.kill(names[-1])
    else:
        is_one_away = False
    held = cluster_load(world.master.agents, world.master.zones.values())
    assert sum(each.bytes for each in held.agents) == 8 * replicas * sum(sizes)
    leaving = data.draw(st.integers(1, count - max(replicas, 1)))
    leavers = choose_leavers(held.agents, leaving, held.copies)

    for name in leavers:
        world.master.drain(name, True, world.now)

    def named() -> bool:
        for zone in zones:
            _assert_kept(world, zone, int(is_one_away))
        here = [name for name in leavers if world.master.agents[name].online]
        return any(zone.names(name) for name in here for zone in world.master.zones.values())

    world.wait(lambda: not named())
