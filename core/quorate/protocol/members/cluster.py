"""A cluster as all parts of its master share it: its facts, and the outbox for what they want done.

The outbox collects messages, events and zone records. The master hands them to the shell at the end
of a turn.
"""

from collections.abc import Iterable

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.planning.queue.retries import MigrationRetries
from quorate.protocol.members.membership import KnownAgent
from quorate.protocol.members.newer_rows import NewerRows
from quorate.protocol.messages.events import Event, Reason
from quorate.protocol.messages.master import AskInventory, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.settings import ProtocolSettings

ASK_MIN_MS = 10_000
ASK_MAX_MS = 60_000
"""Sizes of copies order the queue and are shown in plans, and positions rank voters that are to
take over: for all of that a minute old is new enough, unless copies are to be made."""

PASSES_MAX = 16
"""The most zones that get a full pass, or are placed, in one turn: each takes milliseconds."""

PLANS_MAX = 1_000
"""The most steps that the queue plans in one turn, 40 µs each.  Passes over zones plan the rest."""


class Cluster:
    """The facts and the outbox of one mastership; see Master for `recovering` and `rebuilds`."""

    def __init__(
        self,
        master_term: int,
        settings: ProtocolSettings,
        now: Now,
        *,
        recovering: bool = False,
        rebuilds: bool = False,
    ) -> None:
        self.master_term = master_term
        self.began_ms = now.boot_ms
        self.settings = settings
        self.recovering = recovering
        self.rebuilds = rebuilds
        self.agents: dict[str, KnownAgent] = {}
        self.newer_rows = NewerRows(self.agents)
        self.retries = MigrationRetries()
        self.migrations_due = False
        """Whether something has changed that may let a migration start."""
        self.members_told = 0
        """The number of the last `Members`."""
        self.revision = 0
        """Of the topology: the number of its last change, the join or leave of a node."""
        self.sends: list[tuple[str, Message]] = []
        self.events: list[Event] = []
        self.zone_writes: dict[str, ZoneRecord | None] = {}
        """Zone records to be written, by uid; None deletes one."""
        self.passes_left = PASSES_MAX
        self.plans_left = PLANS_MAX
        self.asked_ms = now.boot_ms - ASK_MIN_MS
        self.summaries_due = False
        """Whether copies are to be made, so that their sizes count."""

    def send(self, node: str, message: Message) -> None:
        """Send to one agent, registered or about to be refused."""
        self.sends.append((node, message))

    def publish(self, nodes: Iterable[str], message: Message) -> None:
        """Send to all of `nodes` that are connected and registered."""
        for node in nodes:
            agent = self.agents[node]
            if agent.connected and agent.record is not None:
                self.sends.append((node, message))

    def publish_to_all(self, message: Message) -> None:
        """Send to all agents that are connected and registered."""
        self.publish(sorted(self.agents), message)

    def zone_table(self, zone: ZoneRecord, rows: tuple[PartitionRow, ...]) -> ZoneTable:
        """Return the zone with these rows, for agents that have this master's last `Members`."""
        return ZoneTable(self.master_term, zone, rows, self.members_told)

    def event(
        self, zone: str, partition: int | None, reason: Reason, message: str, kind: str = "Normal"
    ) -> None:
        """Note an event for users."""
        self.events.append(Event(zone, partition, reason, message, kind))

    def write_zone(self, record: ZoneRecord) -> None:
        """Write a zone's record, which the master has changed (its ports, for example)."""
        self.zone_writes[record.uid] = record

    def delete_zone_record(self, uid: str) -> None:
        """Delete the record of a deleted zone: no agent has data of it any more."""
        self.zone_writes[uid] = None

    def may_plan(self) -> bool:
        """Return whether the queue may plan one more step in this turn, and count it."""
        if not self.plans_left:
            return False
        self.plans_left -= 1
        return True

    def may_pass(self) -> bool:
        """Return whether a zone may have a full pass, or be placed, in this turn, and count it."""
        if not self.passes_left:
            return False
        self.passes_left -= 1
        return True

    def ask_summaries(self, now: Now) -> None:
        """Ask all agents how large and how far their copies are, if that is due.

        After the loss of the metastore they also tell their rows again.
        """
        interval_ms = ASK_MIN_MS if self.summaries_due else ASK_MAX_MS
        if now.boot_ms - self.asked_ms < interval_ms:
            return
        self.asked_ms, self.summaries_due = now.boot_ms, False
        ask = AskInventory(self.master_term, self.recovering, brief=not self.recovering)
        self.publish_to_all(ask)
