"""Reads the digests of a zone's copies from their agents: whole, or by ranges of keys."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quorate.protocol.copies.totals import DIGEST_BYTES
from quorate.protocol.messages.tools import (
    AskBuckets,
    AskDigests,
    Buckets,
    CopyDigest,
    Digests,
)
from quorate_spark.reading.agent_link import AgentLink, Unreadable

UPTO_ALL = (1 << 63) - 1
"""Above every counter."""

_MASK = (1 << 8 * DIGEST_BYTES) - 1


class Shares(NamedTuple):
    """One copy's rows by bucket: (rows, digest).  `lwm`: the copy's at the last answer."""

    lwm: int
    by_bucket: Mapping[int, tuple[int, int]]


def read_digests(
    link: AgentLink, zone: str, partitions: Sequence[int], marks: Sequence[int]
) -> dict[int, CopyDigest]:
    """Return the digests of the partitions that exist, by partition.

    At most DIGESTS_ASKED_MAX may be asked for.
    """
    answer = link.ask(AskDigests(zone, tuple(partitions), tuple(marks)), Digests)
    if answer.problem:
        raise Unreadable(f"{link.name} has no zone {zone}: {answer.problem}")
    if (answer.zone_name, answer.node) != (zone, link.agent.node):
        raise Unreadable(
            f"{link.name} was asked for digests of zone {zone} and answered for"
            f" {answer.zone_name} on {answer.node}"
        )
    found = {copy.partition: copy for copy in answer.copies}
    if len(found) < len(answer.copies) or not set(found) <= set(partitions):
        raise Unreadable(f"{link.name} answered digests of copies that it was not asked for")
    return found


def read_shares(link: AgentLink, zone: str, partition: int, upto: int) -> Shares:
    """Return a copy's rows with counter <= `upto`, added up by bucket."""
    shares: dict[int, tuple[int, int]] = {}
    after: bytes | None = None
    while True:
        answer = link.ask(AskBuckets(zone, partition, upto, after), Buckets)
        if answer.problem:
            raise Unreadable(f"partition {partition}: {link.name} cannot read it: {answer.problem}")
        if (answer.zone_name, answer.partition) != (zone, partition):
            raise Unreadable(
                f"{link.name} was asked for {zone}/{partition} and answered"
                f" {answer.zone_name}/{answer.partition}"
            )
        for bucket, rows, digest in answer.shares:
            count, total = shares.get(bucket, (0, 0))
            shares[bucket] = (count + rows, (total + int.from_bytes(digest)) & _MASK)
        if answer.next is None:
            return Shares(answer.lwm, shares)
        if after is not None and answer.next <= after:
            raise Unreadable(
                f"partition {partition}: {link.name} answered a next position that is not beyond"
                " the last: it must rise"
            )
        after = answer.next
