"""The read leases that an agent holds and grants, and the maximum age of a message.

One heartbeat per pair of agents grants the lease for every partition whose promise is held by the
sender.  Promises that have moved on are sent as exceptions, which are repeated until the sender has
seen them.  The holder counts from when it sent the heartbeat, less a margin; the grantor counts
from when it received it.  Source: docs/protocol.md, section 4.
"""

from collections.abc import Mapping

from quorate.facts.time import Now
from quorate.protocol.copies.shared_leases import SharedLeases
from quorate.protocol.messages.replication import Heartbeat, HeartbeatAck
from quorate.protocol.settings import ProtocolSettings

ASKED_MAX = 32
"""Number of heartbeats to one agent that are remembered.

Only their answers count, and only by them is the age of a message known.  Older ones do not matter:
by then a lease is over, and nobody waits for the answer to such a message.
"""


class Leases:
    """Both sides of the leases of one agent, for all zones together.  Times are boot
    milliseconds."""

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
        """Grant `node` the lease of everything promised to it, except what has moved on."""
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
        """Note that `node` no longer has our promise; every answer tells it so."""
        self._sequence += 1
        self._exceptions.setdefault(node, {})[(zone, partition)] = (self._sequence, term)

    def granted_until(self, node: str) -> int:
        """Return when the last lease that we granted to `node` ends.

        A process that has just started has forgotten what it granted, so it assumes a grant at its
        start.
        """
        from_start = self._started_ms + self._settings.lease_ms
        return max(from_start, self._granted_until.get(node, 0))

    # --- as holder -------------------------------------------------------------------------------

    def heartbeat(self, node: str, now: Now) -> Heartbeat:
        """Return the heartbeat that asks `node` for its lease."""
        asked = self._asked.setdefault(node, [])
        asked.append(now.boot_ms)
        del asked[:-ASKED_MAX]
        return Heartbeat(now.boot_ms, self._seen.get(node, 0))

    def granted(self, node: str, ack: HeartbeatAck) -> None:
        """Take in an answer; the caller applies its exceptions before leases are used.

        An answer to an earlier process gives no lease: that process may have had another clock.
        """
        if ack.sent_ms not in self._asked.get(node, ()):
            return
        until = ack.sent_ms + ack.lease_ms - self._settings.lease_margin_ms
        if until > self._held_until.get(node, 0):
            self._held_until[node] = until
            self.shared.recount()
        self._seen[node] = max(self._seen.get(node, 0), ack.sequence)

    def restarted(self, node: str) -> None:
        """Forget the lease of `node`, a new process whose exception sequence starts again.

        An answer to an earlier heartbeat counts no more: it may be the former process's.
        """
        self._asked.pop(node, None)
        self._heard.pop(node, None)
        self._seen.pop(node, None)
        self._held_until.pop(node, None)
        self.shared.recount()

    def held_until(self, node: str) -> int:
        """Return until when the lease from `node` runs; 0 if it never granted one."""
        return self._held_until.get(node, 0)

    @property
    def held(self) -> Mapping[str, int]:
        """Node -> until when its lease runs.  Nodes that never granted one are left out."""
        return self._held_until

    @property
    def contact_ms(self) -> int:
        """When this agent sent the last report of which it knows that the master had it."""
        return self.shared.contact_ms

    def set_contact(self, sent_ms: int) -> None:
        """Note that the master had a report that was sent at `sent_ms`."""
        if sent_ms > self.shared.contact_ms:
            self.shared.contact_ms = sent_ms
            self.shared.recount()

    # --- age of a message ------------------------------------------------------------------------

    def heard(self, node: str) -> int:
        """Return when `node`, by its own clock, sent the newest heartbeat received here; 0 if none.

        If a message to `node` contains this time, `node` knows that the message is no older than
        that.
        """
        return self._heard.get(node, 0)

    def sent_heartbeat(self, node: str, sent_ms: int) -> bool:
        """Return whether this process recently sent `node` a heartbeat at that time."""
        return sent_ms in self._asked.get(node, ())
