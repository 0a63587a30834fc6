"""A table that follows a zone: what the rows of a stream make of it, by the rules of the manual."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Told = Mapping[str, Any]
"""One row of the stream, with the column `told`."""


class Kept(NamedTuple):
    """A row of the table."""

    partition: int
    written: tuple[int, int]
    value: bytes
    expires_at: int


class Mirror:
    """`rows[key]` of each key that is there."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Kept] = {}

    def apply(self, batch: Iterable[Told]) -> None:
        """Take one micro-batch, whole or in part; its rows come in any order of partitions."""
        told = list(batch)
        anew = {row["partition"] for row in told if row["told"] == "anew"}
        self.rows = {key: row for key, row in self.rows.items() if row.partition not in anew}
        kept = [row for row in told if row["partition"] not in anew or row["told"] == "row"]
        for row in sorted(kept, key=written):
            self._take(row)

    def _take(self, told: Told) -> None:
        partition = told["partition"]
        if told["key"] is None:
            self.rows = {
                key: row
                for key, row in self.rows.items()
                if row.partition != partition or row.written > written(told)
            }
            return
        key, before = bytes(told["key"]), self.rows.get(bytes(told["key"]))
        if before is not None and before.written > written(told):
            return
        if told["value"] is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = Kept(
                partition, written(told), bytes(told["value"]), told["expires_at"]
            )

    def values(self) -> dict[bytes, tuple[bytes, int]]:
        """Value and expiry of each key."""
        return {key: (row.value, row.expires_at) for key, row in self.rows.items()}


def written(told: Told) -> tuple[int, int]:
    """Term and counter: by these, updates of one key follow each other."""
    return told["term"], told["counter"]
