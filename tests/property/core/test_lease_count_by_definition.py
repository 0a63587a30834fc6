"""Until when a role serves: what is counted with every heartbeat, against the definition."""

import random
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.facts.partition_row import PartitionRow, quorum
from quorate.facts.time import Now
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.shared_leases import Grants
from quorate.protocol.messages.replication import HeartbeatAck
from quorate.protocol.settings import DEFAULTS

NODES = ("a", "b", "c", "d", "e")
FOREVER = 1 << 62
WIDE = ZoneRecord("u", "z", 64, 3, StorageKind.IN_MEMORY)


def copy_of(partition: int) -> Copy:
    return cast(Copy, SimpleNamespace(partition=partition, lwm=0, durable_lwm=0))


def by_definition(
    voters: tuple[str, ...], gone: set[str], promised: set[str], held: dict[str, int]
) -> int:
    """The latest moment until which a quorum of the voters grants the lease; ours has no end."""
    reached = []
    for node in voters:
        if node in gone:
            reached.append(-1)
        elif node == "a":
            reached.append(FOREVER)
        else:
            reached.append(held.get(node, 0) if node in promised else -1)
    needed = quorum(len(voters), len(gone & {*voters}))
    return sorted(reached, reverse=True)[needed - 1]


@settings(derandomize=True, max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from(NODES), min_size=1, max_size=5, unique=True),
    st.sets(st.sampled_from(NODES)),
    st.sets(st.sampled_from(NODES)),
    st.dictionaries(st.sampled_from(NODES), st.integers(0, 9)),
    st.booleans(),
)
def test_a_role_serves_as_long_as_a_quorum_of_its_voters_grants_it(
    voters: list[str], gone: set[str], promised: set[str], held: dict[str, int], is_rebuilt: bool
) -> None:
    """With and without ourselves among the voters, with stores that are gone for good, and with the
    two sets of voters of a rebuilt row."""
    registered = {node: "other" if node in gone else f"s-{node}" for node in NODES}
    sets = [voters[:-1], voters[1:]] if is_rebuilt and len(voters) > 1 else []
    row = PartitionRow(
        0,
        5,
        5,
        Holder("a", "s-a", 1),
        ("a",),
        _voters(voters),
        sets=tuple(map(_voters, sets)),
    )
    role = Primary(copy_of(0), row, Holder("a", "s-a", 1), registered, 0)
    for node, peer in role.peers.items():
        peer.promised = node in promised

    assert role.granted_until(held) == 0, "it does not serve yet"
    role.stage = Stage.SERVING

    assert role.granted_until(held) == min(
        by_definition(tuple(each), gone, promised, held) for each in (voters, *sets)
    )


def _voters(nodes: list[str]) -> tuple[Voter, ...]:
    return tuple(Voter(node, f"s-{node}") for node in nodes)


def roles(zone: ZoneRecord, draw: random.Random) -> list[Primary]:
    """Roles of agent a over any voters, some of which have promised."""
    made = []
    for partition in range(zone.partitions):
        voters = ["a", *draw.sample(NODES[1:], draw.randint(1, 3))]
        row = PartitionRow(
            partition,
            5,
            5,
            Holder("a", "s-a", 1),
            ("a",),
            _voters(voters),
            sets=draw.choice([(), (), (_voters(voters[:-1]), _voters(voters[1:]))]),
        )
        role = Primary(copy_of(partition), row, Holder("a", "s-a", 1), {}, 0)
        role.stage = draw.choice([Stage.SERVING, Stage.SERVING, Stage.WAITING])
        for peer in role.peers.values():
            peer.promised = draw.random() < 0.7
        made.append(role)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_shared_by_roles_that_are_alike_it_is_the_same(seed: int) -> None:
    draw = random.Random(seed)
    leases = Leases(DEFAULTS, 1, 0)
    serving = [role for role in roles(WIDE, draw) if role.stage is Stage.SERVING]
    shared = [(role, grants) for role in serving if (grants := role.grants()) is not None]
    for role, grants in shared:
        role.lease = leases.shared.share(grants)
    for sent_ms in range(1000, 6000, 1000):
        for node in draw.sample(NODES[1:], 2):
            leases.heartbeat(node, Now(0, sent_ms))
            leases.granted(node, HeartbeatAck(sent_ms, draw.randint(500, 2000), 0, ()))
        if sent_ms == 4000:
            leases.restarted(draw.choice(NODES[1:]))
        for role, _ in shared:
            assert role.serving_until == role.granted_until(leases.held)
    assert len({id(role.lease) for role, _ in shared}) < len(shared) < len(serving)


def test_what_is_counted_for_one_role_leaves_those_that_shared_its_lease_alone() -> None:
    leases = Leases(DEFAULTS, 1, 0)
    alike = Grants(("b", "c"), (True, True), True, 1)
    first, second = roles(WIDE, random.Random(1))[:2]
    first.lease = second.lease = leases.shared.share(alike)
    leases.heartbeat("b", Now(0, 1000))
    leases.granted("b", HeartbeatAck(1000, 2000, 0, ()))
    until = second.serving_until

    first.serving_until = 0

    assert second.serving_until == until > 1000
