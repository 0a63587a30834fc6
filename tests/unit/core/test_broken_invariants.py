"""A turn that has brought a copy or its role into a state that must not exist is never written."""

from collections.abc import Callable

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.settings import DEFAULTS
from quorate_sim.disk import Image, SimStorage

ZONE = ZoneRecord("uid-1", "z", 1, 1)
ME = Holder("a", "store-a.1", 1)
NOW = Now(100_000, 100_000)


def _replicas(image: Image) -> Replicas:
    replicas = Replicas(ZONE, ME, SimStorage(image), Leases(DEFAULTS, 1, 0), DEFAULTS, NOW)
    replicas.set_members([NodeRecord("a", "store-a", 1, "a", 1, "a")])
    return replicas


def _end(replicas: Replicas) -> None:
    turn = replicas.flush(NOW)
    replicas.storage.sync()
    replicas.synced(turn, NOW)


def _write(replicas: Replicas, key: bytes) -> None:
    role = replicas.roles[0]
    role.write(((key, b"value", 0),))
    replicas.commands_wrote(role)


def _log_too_long(replicas: Replicas) -> None:
    replicas.copies[0].log_from = replicas.copies[0].lwm + 1


def _durable_too_early(replicas: Replicas) -> None:
    replicas.copies[0].durable_lwm = replicas.copies[0].lwm + 1


def _promise_of_another(replicas: Replicas) -> None:
    replicas.copies[0].promise_holder = Holder("b", "store-b.1", 1)


def _stage_set(replicas: Replicas) -> None:
    replicas.roles[0].stage = Stage.WAITING


def _role_of_nobody(replicas: Replicas) -> None:
    replicas.primaries[0] = None


@pytest.mark.parametrize(
    ("plant", "what"),
    [
        (_log_too_long, "log from"),
        (_durable_too_early, "durable LWM"),
        (_promise_of_another, "the copy promised"),
        (_stage_set, "WAITING was not entered"),
        (_role_of_nobody, "misplaced"),
    ],
)
def test_a_turn_with_a_broken_invariant_writes_and_sends_nothing(
    plant: Callable[[Replicas], None], what: str
) -> None:
    image = Image()
    replicas = _replicas(image)
    voters = (Voter("a", "store-a.1"),)
    replicas.set_rows([PartitionRow(0, 3, 3, ME, ("a",), voters)], NOW)
    for _ in range(3):
        _end(replicas)
    _write(replicas, b"before")
    _end(replicas)
    _write(replicas, b"since")
    out = replicas.out

    plant(replicas)

    with pytest.raises(InvariantError, match=f"partition 0.*{what}"):
        replicas.flush(NOW)
    assert replicas.out is out
    assert not out.at_once
    replicas.storage.sync()
    copy = _replicas(image).copies[0]
    copy.check()
    assert copy.get(b"before") is not None
    assert copy.get(b"since") is None
