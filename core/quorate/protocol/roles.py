"""The messages that each role may send to another: the only table of it.

A link decodes what the other side's proven role may send, and nothing else: a tool's ZoneGone is no
message, so no later line has to remember to refuse it.
"""

from types import UnionType

from quorate.protocol.client_messages import Forward, Forwarded
from quorate.protocol.messages import (
    Acks,
    Activated,
    ActivationBlocked,
    AgentReport,
    Append,
    AskInventory,
    CaughtUp,
    CopyReady,
    EventsTold,
    Fence,
    FenceAck,
    FenceRefused,
    Freeze,
    Frozen,
    Greet,
    Heartbeat,
    HeartbeatAck,
    Inventory,
    MasterPing,
    Members,
    Prepared,
    PreparedRow,
    Refused,
    Rejected,
    RowsStored,
    Sync,
    TransferProgress,
    ZoneGone,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.tool_messages import (
    AskBuckets,
    AskCopies,
    AskDigests,
    AskRows,
    Buckets,
    Copies,
    CopyRows,
    Damage,
    Damaged,
    Digests,
    Refill,
    Refilling,
)
from quorate.protocol.transaction_messages import TransactionMessage
from quorate.protocol.transfer_messages import (
    FetchKeys,
    FetchSnapshot,
    FetchUpdates,
    KeyRows,
    SnapshotChunk,
    Unavailable,
    Updates,
)

ROLES = ("master", "agent", "tool")

FromMaster = (
    Members
    | ZoneTable
    | ZoneGone
    | MasterPing
    | PreparedRow
    | Freeze
    | AskInventory
    | EventsTold
    | Greet
)
ToMaster = (
    Inventory
    | ZoneReady
    | RowsStored
    | AgentReport
    | CaughtUp
    | Frozen
    | Prepared
    | Activated
    | ActivationBlocked
    | CopyReady
    | TransferProgress
)
AmongAgents = (
    Heartbeat
    | HeartbeatAck
    | Fence
    | FenceAck
    | FenceRefused
    | Sync
    | Append
    | Acks
    | Rejected
    | FetchUpdates
    | Updates
    | FetchKeys
    | KeyRows
    | FetchSnapshot
    | SnapshotChunk
    | Unavailable
    | Forward
    | Forwarded
    | TransactionMessage
)
FromTool = AskCopies | AskRows | AskDigests | AskBuckets | Damage | Refill
ToTool = Copies | CopyRows | Digests | Buckets | Damaged | Refilling

MAY_SEND: dict[tuple[str, str], UnionType] = {
    ("master", "agent"): FromMaster | Refused,
    ("agent", "master"): ToMaster | Refused,
    ("agent", "agent"): AmongAgents | Refused,
    ("tool", "agent"): FromTool | Refused,
    ("agent", "tool"): ToTool | Refused,
}
"""(sender, receiver) -> what may be sent.  Pairs that are not here have nothing to say to each
other."""
