"""Rows that agents have in a newer version than the metastore, as it was read.

How they are judged: master/older_metastore.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

from quorate.facts.partition_row import PartitionRow
from quorate.protocol.members.membership import KnownAgent
from quorate.protocol.messages.master import CopyReport
from quorate.protocol.metastore import Key, ShardKey, Value


class Older(NamedTuple):
    """A partition of which the metastore holds an older row than an agent: it holds `stored`."""

    uid: str
    partition: int
    version: int
    node: str
    stored: int


class NewerRows:
    """The newer rows that agents have reported. `told`: (zone, partition) -> (version, agent)."""

    def __init__(self, agents: Mapping[str, KnownAgent]) -> None:
        self.told: dict[tuple[str, int], tuple[int, str]] = {}
        self._agents = agents

    def note(self, uid: str, row: PartitionRow, node: str, copy: CopyReport) -> None:
        """Note `copy` of `node` if it has a newer row of its partition than `row`."""
        if copy.version > row.version:
            told = (copy.version, node)
            self.told[uid, row.partition] = max(told, self.told.get((uid, row.partition), told))

    def compare(self, uid: str, row: PartitionRow) -> None:
        """Note the agents that have a newer row than this one, which another process stored."""
        for node, agent in sorted(self._agents.items()):
            copy = agent.inventory.get(uid, {}).get(row.partition)
            if copy is not None:
                self.note(uid, row, node, copy)

    def judge(
        self, told: Mapping[tuple[str, int], tuple[int, str]], stored: Mapping[Key, Value]
    ) -> list[Older]:
        """Return what is older in `stored` than in `told`; see Master.looked_again."""
        versions: dict[tuple[str, int], int] = {}
        for key, rows in stored.items():
            if isinstance(key, ShardKey) and isinstance(rows, tuple):
                versions.update({(key.uid, row.partition): row.version for row in rows})
        older: list[Older] = []
        for (uid, partition), (version, node) in sorted(told.items()):
            if self.told.get((uid, partition)) == (version, node):
                del self.told[uid, partition]
            newest = versions.get((uid, partition), 0)
            if newest < version:
                older.append(Older(uid, partition, version, node, newest))
        return older
