"""A row that was rebuilt carries the voters before and after its migration until it is served: a
quorum of each must promise, adopt, grant and acknowledge, and nobody moves it meanwhile."""

from collections.abc import ValuesView

import msgspec
import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import (
    Migration,
    MigrationKind,
    PartitionRow,
    check_row,
    is_quorum,
)
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.messages.master import AgentReport, Trouble, TroubleKind
from quorate.protocol.messages.replication import Acks, FenceAck, HeartbeatAck
from quorate.protocol.metastore import NodeKey, ShardKey, ZoneKey
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master import ownership
from quorate.protocol.zone_master.decide_partition import decide
from quorate.protocol.zone_master.partition_state import PartitionState, read_part
from quorate.protocol.zone_master.zone import Parts
from quorate_lone_master.world import LoneMaster
from quorate_sim.disk import Image, SimStorage

NOW = Now(100_000, 100_000)


def voters(names: str) -> tuple[Voter, ...]:
    return tuple(Voter(name, f"store-{name}") for name in names)


def rebuilt(before: str, after: str) -> PartitionRow:
    """`a` is primary, and alone is seated."""
    every = "".join(dict.fromkeys(before + after))
    primary = Holder("a", "store-a", 1)
    sets = (voters(before), voters(after))
    return PartitionRow(0, 9, 9, primary, ("a", None), voters(every), None, sets)


ROW = rebuilt("ab", "bc")
"""Of all three two are a quorum; of each pair, both."""


# --- the row -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "dead", "is_one"),
    [
        ("ab", "", False),
        ("ac", "", False),
        ("abc", "", True),
        ("bc", "a", True),
        ("ac", "b", True),
    ],
)
def test_a_quorum_is_one_of_each_set(here: str, dead: str, is_one: bool) -> None:
    assert is_quorum(ROW, here, dead) is is_one


@pytest.mark.parametrize(("dead", "is_one"), [("ab", False), ("ad", False), ("cd", True)])
def test_two_that_are_left_of_four_are_a_quorum_only_where_they_are_one_of_both_sets(
    dead: str, is_one: bool
) -> None:
    row = rebuilt("abc", "abd")
    assert is_quorum(row, set("abcd") - set(dead), dead) is is_one
    assert is_quorum(msgspec.structs.replace(row, sets=()), set("abcd") - set(dead), dead)


MOVE = Migration("z/0/10", MigrationKind.MOVE, "a", None, ("b",), voters("bc"))


@pytest.mark.parametrize(
    "changes",
    [
        {"active": MOVE},
        {"sets": (voters("abc"),)},
        {"sets": (voters("ab"), voters("ab"))},
        {"sets": (voters("aab"), voters("bc"))},
    ],
    ids=["a migration", "one set", "a voter of none", "a voter twice"],
)
def test_other_sets_are_an_invalid_row(changes: dict[str, object]) -> None:
    check_row(ROW)
    check_row(msgspec.structs.replace(ROW, voters=voters("ab")))  # the store of c is gone
    with pytest.raises(InvariantError, match="partition 0: of two sets of voters"):
        check_row(msgspec.structs.replace(ROW, **changes))


def test_no_migration_begins_from_such_a_row() -> None:
    with pytest.raises(InvariantError):
        ownership.started(ROW, MOVE)


def test_the_sets_outlast_every_other_change() -> None:
    other = ownership.activated(ROW, Holder("b", "store-b", 1), frozenset({"a"}))
    for row in (other, ownership.with_owner(ROW, "b"), ownership.without_owners(ROW, frozenset())):
        assert row.sets == ROW.sets
    assert ownership.with_one_set(ROW) == msgspec.structs.replace(ROW, version=10, sets=())


@pytest.mark.parametrize(
    ("before", "after", "survivor", "needed"),
    [
        ("abc", "abc", "a", 1),  # no sets, in effect: one of b and c
        ("abc", "bcd", "d", 2),  # a write of b and c alone must not be missed
        ("abc", "bcd", "b", 2),  # nor one of a and c
        ("ab", "bc", "a", 1),
        ("ab", "ab", "a", 0),
    ],
)
def test_a_reset_waits_for_one_of_each_quorum_of_each_set(
    before: str, after: str, survivor: str, needed: int
) -> None:
    reset = ownership.reset_to(
        rebuilt(before, after), Holder(survivor, f"store-{survivor}", 1)
    ).reset

    assert reset is not None
    assert reset.links[-1].needed == needed


def test_a_reset_does_not_wait_for_stores_of_a_set_that_do_not_vote_any_more() -> None:
    row = msgspec.structs.replace(rebuilt("ab", "ac"), voters=voters("a"))
    reset = ownership.reset_to(row, Holder("a", "store-a", 1)).reset

    assert reset is not None
    assert reset.links[-1].needed == 0


def test_a_node_that_only_a_set_names_keeps_its_registration() -> None:
    parts = Parts()
    parts[0] = read_part(msgspec.structs.replace(rebuilt("ab", "ac"), voters=voters("a")), 0)

    assert parts.names("b")
    assert not parts.names("d")


class _Counted(Parts):
    """Counts how often all parts are looked at."""

    looks = 0

    def values(self) -> ValuesView[PartitionState]:
        self.looks += 1
        return super().values()


def test_the_nodes_that_rows_name_are_gathered_once_while_no_row_changes() -> None:
    parts = _Counted()
    parts[0] = read_part(rebuilt("ab", "ac"), 0)
    for node in "abcd":
        assert parts.names(node) == (node != "d")
        parts[0] = msgspec.structs.replace(parts[0], has_served=True)
        assert not parts.leave(node)
    assert parts.looks == 1

    left = ownership.reset_to(rebuilt("ab", "ac"), Holder("a", "store-a", 1))
    parts[1] = read_part(left, 0)
    assert parts.leave("b")
    parts.forget(0)
    assert not parts.names("b")
    parts.clear()
    assert not parts.names("a")
    assert not parts.leave("b")


def test_a_row_as_it_was_stored_before_is_read() -> None:
    fields: list[object] = [0, 3, 3, None, ["a"], [["a", "store-a"]], None]
    packed, text = msgspec.msgpack.encode(fields), msgspec.json.encode(fields)
    row = PartitionRow(0, 3, 3, None, ("a",), voters("a"))

    assert msgspec.msgpack.decode(packed, type=PartitionRow) == row
    assert msgspec.json.decode(text, type=PartitionRow) == row
    assert msgspec.json.decode(msgspec.json.encode(ROW), type=PartitionRow) == ROW


def test_a_store_that_is_gone_counts_in_the_sets_also_where_it_is_no_voter_any_more() -> None:
    row = msgspec.structs.replace(rebuilt("ab", "ac"), voters=voters("a"))
    world = led(row)
    world.connect("b", "c", store="another")
    world.connect("a")
    world.serves = lambda node: True
    world.wait(lambda: not stored(world).sets)

    assert stored(world).voters[0] == Voter("a", "store-a")


# --- the primary ---------------------------------------------------------------------------------


class Served:
    """Agent "a" is primary of the row; the others answer as they are told to."""

    def __init__(self) -> None:
        self.leases = Leases(DEFAULTS, 1, 0)
        zone = ZoneRecord("uid", "books", 1, 2)
        holder = Holder("a", "store-a", 1)
        self.replicas = Replicas(zone, holder, SimStorage(Image()), self.leases, DEFAULTS, NOW)
        self.replicas.set_members([NodeRecord(n, f"store-{n}", 1, n, 1, n) for n in "abc"])
        self.take(ROW)

    @property
    def role(self) -> Primary:
        return self.replicas.roles[0]

    def take(self, row: PartitionRow) -> None:
        self.replicas.set_rows([row], NOW)
        self.end_turn()

    def end_turn(self) -> None:
        self.replicas.synced(self.replicas.flush(NOW), NOW)

    def promise(self, node: str) -> None:
        self.replicas.receive(
            node, FenceAck("uid", 0, 9, f"store-{node}", Lineage(), 0, (), 0, False), NOW
        )
        self.end_turn()

    def acknowledge(self, node: str, lwm: int) -> None:
        self.replicas.receive(node, Acks("uid", ((0, 9, lwm),)), NOW)

    def grant(self, node: str) -> None:
        asked = self.leases.heartbeat(node, NOW)
        self.leases.granted(node, HeartbeatAck(asked.sent_ms, 2000, 1, ()))
        self.replicas.renew_own_leases()

    def write(self) -> Waiter:
        waiter = Waiter((b"k",), None, 0)
        self.role.write(((b"k", b"v", 0),))
        self.role.wait(waiter)
        self.replicas.commands_wrote(self.role)
        self.end_turn()
        return waiter


def test_promise_adoption_lease_and_acknowledgement_need_a_quorum_of_each_set() -> None:
    served = Served()
    role = served.role
    served.promise("c")
    assert role.stage is Stage.FENCING, "b has not promised, and a alone is none of two"
    served.promise("b")
    served.acknowledge("c", 0)
    assert role.stage is Stage.ADOPTING, "b has not adopted"
    served.acknowledge("b", 0)
    assert role.stage is Stage.SERVING

    served.grant("c")
    assert not role.serves(NOW.boot_ms)
    served.grant("b")
    assert role.serves(NOW.boot_ms)

    waiter = served.write()
    served.acknowledge("c", 1)
    assert served.replicas.take_finished().answered == []
    served.acknowledge("b", 1)
    assert served.replicas.take_finished().answered == [waiter]


def test_with_one_set_again_a_quorum_of_all_together_suffices() -> None:
    served = Served()
    for node in "bc":
        served.promise(node)
        served.acknowledge(node, 0)
    served.grant("c")
    waiter = served.write()
    served.acknowledge("c", 1)

    served.take(ownership.with_one_set(ROW))

    assert served.replicas.take_finished().answered == [waiter]
    served.replicas.renew_own_leases()
    assert served.role.serves(NOW.boot_ms)


# --- the master ----------------------------------------------------------------------------------

ZONE = ZoneRecord("uid-1", "books", 1, 2, placed=True, scale_down_ms=10_000)


def led(row: PartitionRow = ROW) -> LoneMaster:
    """A master that finds the row stored; nobody serves yet."""
    world = LoneMaster(nodes=())
    world.stored = {
        ZoneKey(ZONE.uid): ZONE,
        ShardKey(ZONE.uid, 0): (row,),
        **{NodeKey(n): NodeRecord(n, f"store-{n}", 1, n, 1, n, process=f"{n}-1") for n in "abc"},
    }
    world.serves = lambda node: False
    world.follow()
    return world


def stored(world: LoneMaster) -> PartitionRow:
    rows = world.stored[ShardKey(ZONE.uid, 0)]
    assert isinstance(rows, tuple)
    return rows[0]


def test_until_its_primary_serves_nothing_is_moved_or_dropped_and_then_the_sets_go_first() -> None:
    world = led()
    world.connect("a", "b", "c")
    world.pass_time(10_000)
    assert not world.started
    assert stored(world).sets == ROW.sets
    assert set(stored(world).voter_nodes) == set("abc")
    status = world.status(ZONE)
    assert (status.phase, status.unavailable) == ("Unavailable", 1)

    world.serves = lambda node: True
    world.wait(lambda: not stored(world).sets)
    assert set(stored(world).voter_nodes) == set("abc")
    world.wait(lambda: len(stored(world).voters) == 2 and stored(world).active is None)
    assert world.status(ZONE).phase == "Available"


def test_nobody_is_made_primary_without_a_quorum_of_each_set() -> None:
    world = led()
    world.connect("a", "b", "c")
    world.pass_time(100)
    before = stored(world).primary
    world.kill("a")
    world.pass_time(10_000)
    assert stored(world).primary == before == ROW.primary, "a has left, and is one of two before"

    world.connect("a", store="another")  # its store is gone for good
    world.wait(lambda: stored(world).primary != ROW.primary)
    assert stored(world).sets == ROW.sets


def test_the_zone_names_the_stores_whose_loss_leaves_no_quorum_of_a_set() -> None:
    world = led(rebuilt("abc", "abd"))
    world.stored[NodeKey("d")] = NodeRecord("d", "store-d", 1, "d", 1, "d", process="d-1")
    world.follow()
    world.connect("a", "b", "c", "d")
    assert "no longer have a quorum" not in world.status(ZONE).sentence
    world.kill("a", "b")
    world.connect("a", "b", store="another")
    world.pass_time(5_000)

    status = world.status(ZONE)
    assert status.phase == "Unavailable"
    assert (
        "1 of them no longer have a quorum (partitions 0): the stores of a, b are gone"
        in status.sentence
    )
    assert "start one of these agents with its old folder" in status.sentence


@pytest.mark.parametrize("has_served", [False, True])
def test_a_primary_of_which_it_is_only_known_that_it_never_serves_does_not_end_the_sets(
    has_served: bool,
) -> None:
    """In both cases the activation is over, and the master does not wait."""
    world = led()
    world.connect("a", "b", "c")
    part = PartitionState(ROW, 0, resolved=True, has_served=has_served, never_serves=not has_served)

    row = decide(part, world.master.zones[ZONE.uid].nodes, ZONE.uid, 2, DEFAULTS, 0).row

    assert row == (ownership.with_one_set(ROW) if has_served else None)


def test_a_store_that_one_of_the_sets_does_without_is_not_taken_in_again() -> None:
    world = led()
    world.connect("b", "c")
    world.connect("a", store="another")
    world.wait(lambda: stored(world).primary != ROW.primary)
    world.kill("a")

    refused = world.master.refusal(world.hello("a", 9))

    assert refused is not None
    assert "store store-a counts as gone for good" in refused.reason


def test_nothing_is_moved_of_a_row_whose_primary_says_that_it_never_serves_in_its_term() -> None:
    world = led()
    world.connect("a", "b", "c", "d")
    world.pass_time(DEFAULTS.failure_detection_ms)
    world.kill("b")  # without b there is no quorum, and d could take its place
    no_role = Trouble(ZONE.uid, 0, stored(world).term, TroubleKind.NO_ROLE, DEFAULTS.lease_ms)
    world.master.receive("a", AgentReport(1, troubles=(no_role,)), world.now)
    assert world.master.zones[ZONE.uid].parts[0].never_serves
    world.pass_time(ZONE.scale_down_ms + 5_000)

    assert not world.started
    assert stored(world).sets == ROW.sets
