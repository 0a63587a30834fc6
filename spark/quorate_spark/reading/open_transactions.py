"""Finds the partitions of a zone in which transactions are not finished."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from quorate.protocol.transactions.parts import INDEX_KEY, listed_transactions
from quorate_spark.comparing.compare_counters import Unsettled
from quorate_spark.comparing.idle import unfinished_transactions
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Cluster, Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.read_copies import read_key_from
from quorate_spark.settings import Settings


def open_transactions(
    primaries: Mapping[int, CopySeen], zone: str, cluster: Cluster, settings: Settings
) -> dict[int, Unsettled]:
    """Return the partitions with any, and those of which it cannot be told.

    One row of each primary is read: it lists the parts that are prepared and the decisions that are
    not forgotten.
    """
    found: dict[int, Unsettled] = {}
    unreached: dict[str, str] = {}
    # A row each is little, and agents of earlier versions hold no limit.
    unlimited = replace(settings, max_mib_per_second_per_agent=None)
    with AgentLinks(cluster, unlimited) as links:
        for partition, copy in primaries.items():
            reason = unreached.get(copy.address) or _why_unreached(links, copy.address)
            if reason:  # an agent out of reach takes its time to say so: it is not asked again
                unreached[copy.address] = reason
                found[partition] = _untold(zone, partition, reason)
                continue
            try:
                row = read_key_from(links.to(copy.address), copy, INDEX_KEY, zone)
                listed = listed_transactions(None if row is None else row[4])
            except Unreadable as error:
                links.drop(copy.address)
                found[partition] = _untold(zone, partition, str(error))
            except msgspec.DecodeError:
                found[partition] = _untold(
                    zone,
                    partition,
                    f"the row of {copy.node} that lists them is damaged; mode live compares it",
                )
            else:
                if listed:
                    found[partition] = unfinished_transactions(zone, partition, len(listed))
    return found


def _why_unreached(links: AgentLinks, address: str) -> str:
    try:
        links.to(address)
    except Unreadable as error:
        return str(error)
    return ""


def _untold(zone: str, partition: int, reason: str) -> Unsettled:
    return Unsettled(
        f"partition {partition} of zone {zone}: whether transactions are finished is not known:"
        f" {reason}",
        is_final=True,
    )
