"""What a master knows of its agents, as `decide` asks for it, without a master."""

from collections.abc import Mapping

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder
from quorate.protocol.messages.master import CopyReport


class Agents:
    """Only `online` are there; all have reported their copies: `reports` by node, else none."""

    def __init__(self, *online: str, reports: Mapping[str, CopyReport] | None = None) -> None:
        self._online = online
        self._reports = reports or {}

    def holder(self, node: str) -> Holder | None:
        return Holder(node, f"store-{node}", 1) if node in self._online else None

    def gone(self, node: str, store: str) -> bool:
        return node not in self._online

    def dead_voters(self, row: PartitionRow) -> tuple[str, ...]:
        return ()

    def reported(self, node: str) -> bool:
        return True

    def asked_ms(self, node: str) -> int:
        return 0

    def report(self, node: str, partition: int) -> CopyReport | None:
        return self._reports.get(node)

    def leaving(self, node: str) -> bool:
        return False

    def reach_each_other(self, one: str, other: str) -> bool:
        return True
