"""Preview what would move in a zone if nodes were lost or added, from its rows and nodes."""

from collections.abc import Collection, Mapping, Sequence

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.planning.steps.preview import PresentNodes, PresentRow, Preview, preview
from quorate.planning.target.distribute_partitions import DataNode


def zone_preview(
    record: ZoneRecord,
    rows: Mapping[int, PartitionRow],
    sizes: Mapping[int, int],
    present: PresentNodes,
    registered: Collection[str],
    without: Sequence[str],
    more: int,
) -> Preview:
    """Return the plan if `without` were lost and `more` new nodes (new-1, new-2, …) were added.

    `sizes`: bytes of one copy by partition, as far as they are known. ValueError, with a sentence,
    if this cannot be planned.
    """
    unknown = [node for node in without if node not in registered]
    if unknown:
        known = ", ".join(sorted(registered)) or "none"
        raise ValueError(f"node {unknown[0]} is not registered: registered nodes are {known}")
    if len(rows) < record.partitions or record.deleting:
        raise ValueError(f"Zone {record.name}: its partitions are not placed yet: try again later")
    there = [*present.nodes, *(DataNode(f"new-{at}") for at in range(1, more + 1))]
    if not any(node.online and node.name not in without for node in there):
        raise ValueError(
            f"Zone {record.name}: without {', '.join(without)} no node would remain: "
            "omit one of them, or add some"
        )
    before = [
        PresentRow(p, row.replicas, row.voter_nodes, sizes.get(p, 0))
        for p, row in sorted(rows.items())
    ]
    absent, giving_away = present.absent, present.giving_away
    return preview(before, there, without, record.replicas, record.planner, absent, giving_away)
