"""What is said of the whole agent must be true of the zone that is asked."""

import msgspec
import pytest

from quorate.facts.keyspace import SLOT_COUNT
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Voter
from quorate.facts.zone import StorageKind
from quorate.protocol.copies.role_state import FrozenFor, Stage
from quorate.protocol.copies.shared_leases import ServingUntil
from quorate.protocol.settings import DEFAULTS
from quorate_lone_agent.agent import OTHER, ZONE, Agent


@pytest.mark.parametrize(
    ("storage", "said", "aof"),
    [(StorageKind.IN_MEMORY, b"no", b"0"), (StorageKind.PERSISTENT, b"yes", b"1")],
)
def test_what_is_kept_on_disk_is_said_as_it_is(
    agent: Agent, storage: StorageKind, said: bytes, aof: bytes
) -> None:
    agent.replicas.record = msgspec.structs.replace(agent.replicas.record, storage=storage)
    client = agent.writer()

    for pattern in (b"appendonly", b"append*"):
        assert client.ask(b"CONFIG", b"GET", pattern) == [[b"appendonly", said]]
    [info] = client.ask(b"INFO", b"persistence")

    assert b"aof_enabled:" + aof in str(info).encode()


def _slots(agent: Agent) -> tuple[str, int, int]:
    [info] = agent.writer().ask(b"CLUSTER", b"INFO")
    facts = dict(line.split(":") for line in bytes(info).decode().split())
    return facts["cluster_state"], int(facts["cluster_slots_ok"]), int(facts["cluster_slots_fail"])


QUARTER = SLOT_COUNT // ZONE.partitions
ALL_SERVED = ("ok", SLOT_COUNT, 0)


def test_cluster_info_counts_the_slots_of_an_agent_that_is_gone_as_failed(agent: Agent) -> None:
    agent.give(OTHER, [3])
    assert _slots(agent) == ALL_SERVED

    agent.up.remove("b")

    assert _slots(agent) == ("fail", 3 * QUARTER, QUARTER)


def test_cluster_info_counts_slots_whose_lease_is_over_as_failed(agent: Agent) -> None:
    assert _slots(agent) == ALL_SERVED

    agent.clock.ahead_ms += DEFAULTS.park_bound_ms  # since the roles began
    for partition in (0, 1):
        agent.replicas.roles[partition].lease = ServingUntil(0)

    assert _slots(agent) == ("fail", 2 * QUARTER, 2 * QUARTER)


def test_cluster_info_counts_slots_as_failed_once_a_hand_over_lets_commands_wait_too_long(
    agent: Agent,
) -> None:
    agent.replicas.roles[0].frozen = FrozenFor("m-1", agent.clock.boot_ms())
    assert _slots(agent) == ALL_SERVED

    agent.clock.ahead_ms += DEFAULTS.park_bound_ms

    assert _slots(agent) == ("fail", 3 * QUARTER, QUARTER)


def _fail_a_quarter_when_commands_waited_too_long(agent: Agent) -> None:
    assert _slots(agent) == ALL_SERVED

    agent.clock.ahead_ms += DEFAULTS.park_bound_ms

    assert _slots(agent) == ("fail", 3 * QUARTER, QUARTER)


def test_cluster_info_counts_slots_as_served_between_the_end_of_a_role_and_its_next_row(
    agent: Agent,
) -> None:
    agent.replicas.end_role(agent.replicas.roles[0])

    _fail_a_quarter_when_commands_waited_too_long(agent)


def test_cluster_info_counts_slots_as_served_until_a_new_role_has_a_lease(agent: Agent) -> None:
    agent.clock.ahead_ms += DEFAULTS.park_bound_ms
    voters = (Voter("a", agent.me.store), Voter("b", OTHER.store))
    row = PartitionRow(0, 9, 9, agent.me, ("a", "b"), voters)
    agent.replicas.set_rows([row], agent.clock.now())
    agent.turn()
    role = agent.replicas.roles[0]
    assert (role.stage, role.lease.ms) == (Stage.FENCING, 0)

    _fail_a_quarter_when_commands_waited_too_long(agent)
