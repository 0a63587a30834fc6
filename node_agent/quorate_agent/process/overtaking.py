"""Lets messages about other partitions overtake a long update on a link.

A link takes a second and more for 64 MiB.  Messages waiting behind it would delay answers of all
partitions that the two agents share (head-of-line blocking).  So an `Append` with a long update is
sent as bulk, between whose pieces everything else passes.  Later Appends of the same partition
follow it as bulk, in order.
"""

from __future__ import annotations

from quorate.protocol.agent.turn import APPEND_BYTES_MAX
from quorate.protocol.messages.replication import Append, Batch
from quorate.wire.frames import encode_to_send
from quorate.wire.long_frames import LongFrame
from quorate_link import Link


class Overtaking:
    """Sends Appends to other agents so that short ones pass long ones of other partitions."""

    def __init__(self) -> None:
        self._behind: dict[Link, dict[tuple[str, int], int]] = {}
        """By link and (zone, partition) of long updates that wait (or have left since): how much of
        the link's bulk is written once its last Append is."""

    def send(self, link: Link, message: Append, frame: bytes | LongFrame) -> None:
        """Send the message, `frame` being its encoded form."""
        if not link.bulk_bytes:
            self._behind.pop(link, None)
        if len(frame) > APPEND_BYTES_MAX and isinstance(frame, LongFrame):
            if link.send_bulk_frame(Append, frame):
                self._wait(link, message)
            return
        behind = self._behind.get(link)
        if behind is None:
            link.send_frame(Append, frame)
            return
        zone, written = message.zone, link.bulk_written
        late: list[Batch] = []
        others: list[Batch] = []
        for batch in message.batches:
            waits = behind.get((zone, batch.partition), 0) > written
            (late if waits else others).append(batch)
        if not late:
            link.send_frame(Append, frame)
            return
        behind_it = Append(zone, tuple(late))
        if link.send_bulk(behind_it):
            self._wait(link, behind_it)
        if others:
            link.send_frame(Append, encode_to_send(Append(zone, tuple(others))))

    def _wait(self, link: Link, message: Append) -> None:
        """Note that the message is the last of the link's bulk, so later ones of its partitions
        wait."""
        end = link.bulk_written + link.bulk_bytes
        behind = self._behind.setdefault(link, {})
        behind.update({(message.zone, batch.partition): end for batch in message.batches})

    def link_down(self, link: Link) -> None:
        """Forget the link: what waited on it is lost."""
        self._behind.pop(link, None)
