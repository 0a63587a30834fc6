"""A copy that has adopted its primary's term is told the position at once: what a majority has it
would else hear only with the next write."""

from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.messages.replication import Acks, Append, Batch, FenceAck, HeartbeatAck
from quorate.protocol.settings import DEFAULTS
from quorate_sim.disk import Image, SimStorage

NOW = Now(100_000, 100_000)
A = Holder("a", "store-a", 1)
TERM = 3
ROW = PartitionRow(0, TERM, TERM, A, ("a", "b", "c"), tuple(Voter(n, f"store-{n}") for n in "abc"))


def positions(zone: Replicas, node: str) -> list[Batch]:
    """End the turn; return the positions without updates that `node` is sent."""
    turn = zone.flush(NOW)
    zone.synced(turn, NOW)
    sent = [message for to, message in turn.sends if to == node and isinstance(message, Append)]
    return [batch for message in sent for batch in message.batches if not batch.updates]


def acked(zone: Replicas, node: str, lwm: int) -> None:
    zone.receive(node, Acks("uid", ((0, TERM, lwm),)), NOW)


def test_the_first_ack_of_a_copy_is_answered_with_the_position() -> None:
    leases = Leases(DEFAULTS, 1, 0)
    zone = Replicas(ZoneRecord("uid", "books", 1, 3), A, SimStorage(Image()), leases, DEFAULTS, NOW)
    zone.set_members([NodeRecord(n, f"store-{n}", 1, n, 1, n) for n in "abc"])
    zone.set_rows([ROW], NOW)
    for node in "bc":
        ack = FenceAck("uid", 0, TERM, f"store-{node}", Lineage(), 0, (), 0, False)
        zone.receive(node, ack, NOW)
    positions(zone, "b")
    acked(zone, "b", 0)
    leases.granted("b", HeartbeatAck(leases.heartbeat("b", NOW).sent_ms, 2000, 1, ()))
    role = zone.roles[0]
    role.write(((b"k", b"v", 0),))
    zone.commands_wrote(role)
    positions(zone, "b")
    acked(zone, "b", 1)
    assert positions(zone, "c") == []

    acked(zone, "c", 0)
    assert positions(zone, "c") == [Batch(0, TERM, 1, 1, 0, ())]

    acked(zone, "c", 1)
    assert positions(zone, "c") == []
