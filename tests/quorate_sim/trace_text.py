"""How rows, values and messages look in a trace."""

from quorate.facts.partition_row import PartitionRow
from quorate.protocol.copies.copy import decode_update
from quorate.protocol.messages.master import AgentReport, MasterPing, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Append, Heartbeat, HeartbeatAck
from quorate.protocol.messages.transfer import SnapshotChunk, Updates
from quorate.protocol.metastore import Value


def row_text(row: PartitionRow) -> str:
    """p3 v7 t5 a1.1 [a1,a2,None] of a1/s1,a2/s2,a3/s3 MOVE a3→a4;"""
    active = row.active
    migration = ""
    if active is not None:
        destination = active.destination.node if active.destination is not None else None
        migration = f" {active.kind} {active.source}→{destination}"
    primary = f"{row.primary.node}.{row.primary.incarnation}" if row.primary else None
    voters = ",".join(f"{voter.node}/{voter.store}" for voter in row.voters)
    return (
        f"p{row.partition} v{row.version} t{row.term} {primary} "
        f"[{','.join(map(str, row.replicas))}] of {voters}{migration};"
    )


def value_text(value: Value | None) -> str:
    """A value of the metastore."""
    if isinstance(value, tuple):
        return " ".join(map(row_text, value))
    return str(value)


def message_text(message: Message) -> str:
    """A message; empty for those that only say that somebody lives."""
    match message:
        case Heartbeat() | MasterPing():
            return ""
        case HeartbeatAck() if not message.exceptions:
            return ""
        case AgentReport() if not message.troubles:
            return ""
        case ZoneTable():
            return "ZoneTable " + " ".join(map(row_text, message.rows))
        case Append():
            return "Append " + " ".join(
                f"p{b.partition} t{b.term} hwm {b.hwm} majority {b.majority} "
                f"{[decode_update(raw).counter for raw in b.updates]}"
                for b in message.batches
            )
        case Updates():
            got = [decode_update(raw) for raw in message.updates]
            return f"Updates p{message.partition} t{message.term} " + " ".join(
                f"({update.term},{update.counter})" for update in got
            )
        case SnapshotChunk():
            return f"SnapshotChunk p{message.partition} {message.after!r}..{message.next!r}"
        case _:
            return str(message)
