"""All messages, and the only table of which role may send which of them to another role.

A frame on a peer connection is a four-byte big-endian length and one of these structs in msgpack,
as an array whose first element is the tag.  Core, agents and simulator use the structs as they are.
A link decodes only what the proven role of the other side may send.  A ZoneGone from a tool is
therefore not a message, and no later code has to refuse it.
"""

from types import UnionType

from quorate.protocol.messages.clients import Forward, Forwarded
from quorate.protocol.messages.handshake import Hello, Refused
from quorate.protocol.messages.master import FromMaster, ToMaster
from quorate.protocol.messages.replication import ReplicationMessage
from quorate.protocol.messages.tools import FromTool, ToTool
from quorate.protocol.messages.transactions import TransactionMessage
from quorate.protocol.messages.transfer import TransferMessage

ROLES = ("master", "agent", "tool")

AmongAgents = ReplicationMessage | TransferMessage | TransactionMessage | Forward | Forwarded

Message = Hello | Refused | FromMaster | ToMaster | AmongAgents | FromTool | ToTool

MAY_SEND: dict[tuple[str, str], UnionType] = {
    ("master", "agent"): FromMaster | Refused,
    ("agent", "master"): ToMaster | Refused,
    ("agent", "agent"): AmongAgents | Refused,
    ("tool", "agent"): FromTool | Refused,
    ("agent", "tool"): ToTool | Refused,
}
"""(sender, receiver) -> the messages that may be sent.  Other pairs may send nothing."""
