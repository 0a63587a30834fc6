"""The rows of a zone whose metastore is lost: those that agents have told enough of, and what the
others wait for.

What makes one row safe is decided in recover_rows.py.
"""

from collections.abc import Iterable, Mapping

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Voter
from quorate.protocol.membership import Agent, ZoneNodes
from quorate.protocol.messages import CopyReport
from quorate.protocol.recover_rows import Told, Waiting, recovered_row


def rebuild(
    agents: Mapping[str, Agent], nodes: ZoneNodes, uid: str, partitions: Iterable[int]
) -> tuple[list[PartitionRow], str]:
    """Rows for those of `partitions` of which enough is known, and a sentence on the others."""
    here = {
        node: (holder, agent.inventory.get(uid, {}))
        for node, agent in sorted(agents.items())
        if uid in agent.reported and (holder := nodes.holder(node)) is not None
    }
    rows: list[PartitionRow] = []
    waiting: dict[str, list[int]] = {}
    for partition in partitions:
        told = {node: Told(holder, has.get(partition)) for node, (holder, has) in here.items()}
        voters = {voter for each in told.values() for voter in _voters(each.report)}
        dead = [voter for voter in sorted(voters) if nodes.is_dead(voter)]
        found = recovered_row(partition, told, dead)
        if isinstance(found, Waiting):
            waiting.setdefault(found.why, []).append(partition)
        else:
            rows.append(found)
    return rows, "; ".join(
        f"{len(those)} partitions (from {those[0]} on) are not rebuilt yet: {why}"
        for why, those in sorted(waiting.items(), key=lambda each: -len(each[1]))
    )


def _voters(report: CopyReport | None) -> tuple[Voter, ...]:
    row = report.row if report is not None else None
    if row is None:
        return ()
    return row.voters + (row.active.voters if row.active is not None else ())
