"""The state of each partition by what its voters can do, and what a zone's status says of it."""

from collections.abc import Collection

import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.members.membership import KnownAgent, ZoneNodes
from quorate.protocol.messages.master import (
    AgentReport,
    CopyReport,
    Inventory,
    Trouble,
    TroubleKind,
)
from quorate.protocol.status import ZoneStatus
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.view.availability import Availability, availability
from quorate_lone_master.world import LoneMaster

ZONE = ZoneRecord("uid-z", "z", 8, 3)
VOTERS = tuple(Voter(node, f"store-{node}") for node in "abc")
ROW = PartitionRow(0, 7, 5, Holder("a", "store-a", 1), ("a", "b", "c"), VOTERS)


def nodes(
    online: str, dead: str = "", adopted: Collection[tuple[str, int]] = (), fills: str = ""
) -> ZoneNodes:
    """Agents a, b and c; `dead`: those with other stores; `adopted`: (node, last term) reported;
    `fills`: those of them whose copies have promised a later term."""
    agents: dict[str, KnownAgent] = {}
    for node in "abc":
        store = f"{'new' if node in dead else 'store'}-{node}"
        agents[node] = KnownAgent(NodeRecord(node, store, 1, "host", 1, "host"), 0)
        agents[node].online = node in online
        agents[node].has_left = node not in online
    for node, term in adopted:
        told = CopyReport(0, 7, None, "", term, 0, 0, adopted=node not in fills)
        agents[node].inventory["uid"] = {0: told}
    return ZoneNodes(agents, "uid", persistent=True)


def part(row: PartitionRow = ROW, served: bool = True, stuck: str = "") -> PartitionState:
    return PartitionState(row, 0, resolved=True, has_served=served, stuck=stuck)


WITHOUT_A = PartitionRow(0, 8, 5, ROW.primary, (None, "b", "c"), VOTERS)
ONLY_C = PartitionRow(0, 8, 5, ROW.primary, (None, None, "c"), VOTERS)
ONLY_A = PartitionRow(0, 8, 5, ROW.primary, ("a", None, None), VOTERS)
NONE = PartitionRow(0, 8, 5, ROW.primary, (None, None, None), VOTERS)


@pytest.mark.parametrize(
    ("state", "known", "agents"),
    [
        (Availability.AVAILABLE, part(), nodes("abc")),
        (Availability.DEGRADED, part(ONLY_A), nodes("ab")),
        # Another primary is being elected, or activated.
        (Availability.UNAVAILABLE, part(WITHOUT_A), nodes("bc")),
        (Availability.UNAVAILABLE, part(served=False), nodes("abc")),
        # The last owner has adopted the term in which the primary has served.
        (Availability.READ_ONLY, part(ONLY_C), nodes("c")),
        (Availability.READ_ONLY, part(ONLY_A, stuck=TroubleKind.NO_QUORUM), nodes("a")),
        # Links between agents are cut: all are online, and the primary reaches no quorum.
        (Availability.READ_ONLY, part(stuck=TroubleKind.NO_QUORUM), nodes("abc")),
        (Availability.UNAVAILABLE, part(stuck=TroubleKind.NO_ROLE), nodes("abc")),
        # Nothing is known of the term, or the copy is of an earlier one.
        (Availability.UNAVAILABLE, part(ONLY_C, served=False), nodes("c")),
        (Availability.UNAVAILABLE, part(NONE), nodes("c", adopted=[("c", 4)])),
        # It came back after its row was written without it, or the master is new.
        (Availability.READ_ONLY, part(NONE, served=False), nodes("c", adopted=[("c", 5)])),
        (Availability.UNAVAILABLE, part(NONE), nodes("c", adopted=[("c", 5)], fills="c")),
        (Availability.UNAVAILABLE, part(NONE), nodes("", adopted=[("c", 5)])),
        # Stores are gone for good.
        (Availability.READ_ONLY, part(ONLY_C), nodes("abc", dead="ab")),
        (Availability.UNAVAILABLE, part(NONE), nodes("ab", dead="ab")),
        (Availability.LOST, part(NONE), nodes("abc", dead="abc")),
        (Availability.LOST, part(NONE), nodes("", dead="abc")),
    ],
)
def test_each_partition_is_in_one_state(
    state: Availability, known: PartitionState, agents: ZoneNodes
) -> None:
    assert availability(known, 3, agents) is state


def counts(status: ZoneStatus) -> tuple[int, int, int, int, int]:
    return (
        status.available, status.degraded, status.unavailable, status.read_only, status.lost
    )  # fmt: skip


def lose_two(world: LoneMaster) -> list[int]:
    """Agents b and c die, one after the other; a says that its primaries are stuck: which."""
    world.kill("b")
    world.wait(lambda: counts(world.status(ZONE)) == (0, 8, 0, 0, 0))
    world.serves = lambda node: False
    world.kill("c")
    of_a = [p for p, row in world.rows(ZONE).items() if row.replicas[0] == "a"]
    rows = world.rows(ZONE)
    no_quorum, since_ms = TroubleKind.NO_QUORUM, world.settings.lease_ms
    told = [Trouble(ZONE.uid, p, rows[p].term, no_quorum, since_ms) for p in of_a]
    world.master.receive("a", AgentReport(2, troubles=tuple(told)), world.now)
    return of_a


def test_partitions_without_a_quorum_are_read_only_while_a_copy_is_there() -> None:
    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    lose_two(world)

    status = world.status(ZONE)
    assert counts(status) == (0, 0, 8, 8, 0)
    assert status.sentence == (
        "8 partitions have no serving primary; 8 of them wait for a quorum (partitions 0, 1, 2, 3,"
        " 4, 5, 6, 7): start agents that are away: b, c, or go on without what only they have"
        " (`quorate recover reset`, on Kubernetes `kubectl quorate recover reset`); 8 of them"
        " answer reads of READONLY connections, which may be old (partitions 0, 1, 2, 3, 4, 5, 6,"
        " 7)"
    )

    world.kill("a")
    assert counts(world.status(ZONE)) == (0, 0, 8, 0, 0)
    assert "start agents that are away: a, b, c" in world.status(ZONE).sentence


def test_a_partition_whose_election_was_cut_short_is_not_said_to_be_readable() -> None:
    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    elected = [p for p, row in world.rows(ZONE).items() if row.replicas[0] == "b"]
    world.serves = lambda node: False
    world.kill("b", "c")  # what was b's gets a new term before c is missed

    status = world.status(ZONE)
    assert elected
    assert status.unavailable - status.read_only == len(elected)


def test_they_are_available_again_when_the_quorum_is_back() -> None:
    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    lose_two(world)
    world.serves = lambda node: True
    world.connect("b", "c")

    world.wait(lambda: counts(world.status(ZONE)) == (8, 0, 0, 0, 0))


def test_a_new_master_learns_from_inventories_which_copies_may_be_read() -> None:
    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    lose_two(world)
    world.follow()
    world.same_processes = True
    world.connect("a")
    world.pass_time(2 * world.settings.failure_detection_ms)
    assert world.status(ZONE).read_only == 0

    told = tuple(
        CopyReport(p, row.version, None, "", row.term, 0, 0, adopted=True)
        for p, row in world.rows(ZONE).items()
    )
    world.master.receive("a", Inventory(ZONE.uid, told), world.now)

    assert world.status(ZONE).read_only > 0


def test_lost_partitions_count_as_unavailable_and_as_lost() -> None:

    world = LoneMaster(ZONE)
    world.wait(lambda: world.status(ZONE).phase == "Available")
    world.kill("a", "b", "c")
    for node in "abc":
        world.connect(node, store=f"new-{node}")

    world.wait(lambda: world.status(ZONE).lost > 0)
    assert counts(world.status(ZONE)) == (0, 0, 8, 0, 8)
    assert "wait for a quorum" not in world.status(ZONE).sentence
