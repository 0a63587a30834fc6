"""How primaries changed while a test did something, by the rows that were stored meanwhile."""

import json
from collections import Counter
from collections.abc import Callable

from quorate.facts.partition_row import PartitionRow, is_hand_over
from quorate.wire.partition_table import StoredRow, partition_row
from quorate_nodes.watching.kubectl_watch import KubectlWatch


class PrimaryWatch(KubectlWatch):
    """`with PrimaryWatch(kubectl_command, namespace) as watch:`: a watch of the PartitionTables.

    `handed_over`: of how many partitions each agent gave the primary to another one, by a migration
    for which it froze.  `taken_over`: every other change of a primary; one follows from a primary
    that ended, or was taken for lost, before it had handed over.
    """

    def __init__(self, kubectl_command: Callable[..., list[str]], namespace: str) -> None:
        facts = '{.spec.zoneRef.name}|{.spec.rows}{"\\n"}'
        super().__init__(
            kubectl_command(
                "get", "partitiontables", f"--namespace={namespace}", "--watch",
                f"--output=jsonpath={facts}",
            )
        )  # fmt: skip
        self.handed_over: Counter[str] = Counter()
        self.taken_over: list[str] = []
        self._rows: dict[tuple[str, int], PartitionRow] = {}

    def take(self, line: str) -> None:
        """Note the rows of a PartitionTable as they are now."""
        zone, _, rows = line.partition("|")
        for each in json.loads(rows or "[]"):
            row = partition_row(StoredRow.model_validate(each))
            before = self._rows.get((zone, row.partition), row)
            self._rows[zone, row.partition] = row
            if before.primary is None or row.primary == before.primary:
                continue
            if is_hand_over(before, row):
                self.handed_over[before.primary.node] += 1
            else:
                self.taken_over.append(f"{zone}/{row.partition}: {before} -> {row}")
