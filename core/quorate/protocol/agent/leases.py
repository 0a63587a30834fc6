"""Until when this agent may answer reads, what it has promised others about theirs, and how old at
most a message is.

One heartbeat per pair of agents grants the lease for every partition whose promise is held by the
asker.  Promises that have moved on travel as exceptions, repeated until the asker has seen them.
The holder counts from when it sent, less a margin; the grantor from when it received.
Source: docs/protocol.md, section 4.
"""

from collections.abc import Mapping

from quorate.facts.time import Now
from quorate.protocol.copies.shared_leases import SharedLeases
from quorate.protocol.messages.replication import Heartbeat, HeartbeatAck
from quorate.protocol.settings import ProtocolSettings

ASKED_MAX = 32
"""Heartbeats to one agent whose answers still count, and by which a message's age is known: later
than that a lease is over anyway, and nobody waits for the answer to a message."""


class Leases:
    """Both sides of the leases of one agent, all zones together.  Boot milliseconds throughout."""

    def __init__(self, settings: ProtocolSettings, incarnation: int, started_ms: int) -> None:
        self._settings = settings
        self._started_ms = started_ms
        self._granted_until: dict[str, int] = {}
        self._held_until: dict[str, int] = {}
        self.shared = SharedLeases(self._held_until)
        self._asked: dict[str, list[int]] = {}
        self._exceptions: dict[str, dict[tuple[str, int], tuple[int, int]]] = {}
        self._sequence = incarnation << 32
        self._seen: dict[str, int] = {}
        self._heard: dict[str, int] = {}

    # --- as grantor ------------------------------------------------------------------------------

    def answer(self, node: str, heartbeat: Heartbeat, now: Now) -> HeartbeatAck:
        """Grant `node` the lease of everything promised to it, but for what has moved on."""
        until = now.boot_ms + self._settings.lease_ms
        self._granted_until[node] = max(self._granted_until.get(node, 0), until)
        self._heard[node] = heartbeat.sent_ms
        moved = self._exceptions.get(node)
        if moved:
            for key in [key for key, (seq, _) in moved.items() if seq <= heartbeat.seen]:
                del moved[key]
        return HeartbeatAck(
            heartbeat.sent_ms,
            self._settings.lease_ms,
            self._sequence,
            tuple((*key, moved[key][1]) for key in sorted(moved)) if moved else (),
        )

    def promise_moved(self, node: str, zone: str, partition: int, term: int) -> None:
        """`node` no longer has our promise of this partition: tell it with every answer."""
        self._sequence += 1
        self._exceptions.setdefault(node, {})[(zone, partition)] = (self._sequence, term)

    def granted_until(self, node: str) -> int:
        """When the last lease we granted `node` ends.

        A process that has just started has forgotten what it granted: it answers as if it had
        granted at its start.
        """
        from_start = self._started_ms + self._settings.lease_ms
        return max(from_start, self._granted_until.get(node, 0))

    # --- as holder -------------------------------------------------------------------------------

    def heartbeat(self, node: str, now: Now) -> Heartbeat:
        """Ask `node` for its lease."""
        asked = self._asked.setdefault(node, [])
        asked.append(now.boot_ms)
        del asked[:-ASKED_MAX]
        return Heartbeat(now.boot_ms, self._seen.get(node, 0))

    def granted(self, node: str, ack: HeartbeatAck) -> None:
        """Take in an answer; its exceptions are applied by the caller before leases are used.

        One to a process before us gives no lease: its clock may have been another.
        """
        if ack.sent_ms not in self._asked.get(node, ()):
            return
        until = ack.sent_ms + ack.lease_ms - self._settings.lease_margin_ms
        if until > self._held_until.get(node, 0):
            self._held_until[node] = until
            self.shared.recount()
        self._seen[node] = max(self._seen.get(node, 0), ack.sequence)

    def restarted(self, node: str) -> None:
        """`node` is a new process: its exception sequence starts again."""
        self._heard.pop(node, None)
        self._seen.pop(node, None)
        self._held_until.pop(node, None)
        self.shared.recount()

    def held_until(self, node: str) -> int:
        """Until when `node`'s lease runs, 0 when it never granted one."""
        return self._held_until.get(node, 0)

    @property
    def held(self) -> Mapping[str, int]:
        """Until when leases run, by node; of those that never granted one there is none."""
        return self._held_until

    # --- how old a message is --------------------------------------------------------------------

    def heard(self, node: str) -> int:
        """What the clock of `node` showed when it sent its newest heartbeat that came here, 0 when
        none has.  With it in a message `node` can tell that the message is no older than that."""
        return self._heard.get(node, 0)

    def sent_heartbeat(self, node: str, sent_ms: int) -> bool:
        """Whether this process has lately sent `node` a heartbeat at that time."""
        return sent_ms in self._asked.get(node, ())
