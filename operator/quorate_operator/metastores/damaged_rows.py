"""Finds invalid stored rows one by one, so that the object's other rows and the zone go on.

An invalid row that the API server accepted was written by hand, or by another version.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quorate.facts.errors import InvariantError, WireError
from quorate.facts.partition_row import check_row
from quorate.protocol.metastore import SHARD_PARTITIONS, UNREADABLE, DamagedRow
from quorate.wire.partition_table import PartitionTable, PartitionTableSpec, partition_row
from quorate.wire.schema.unknown_fields import UnknownField

Json = dict[str, Any]
_FIRST_ROW = "spec.rows[0]."


class Sifted(NamedTuple):
    """A PartitionTable without its invalid rows; `damaged`: those, each as it is stored.

    `later`: fields of a later version, by their path in the object without the invalid rows.
    """

    spec: PartitionTableSpec
    damaged: tuple[tuple[DamagedRow, Json], ...] = ()
    later: tuple[UnknownField, ...] = ()


def sift(table: Mapping[str, Any]) -> Sifted:
    """Read a PartitionTable row by row.  Raises WireError if that is not possible at all."""
    try:
        parsed, later = PartitionTable.parse_known(table)
        if not _wrong(parsed.spec):
            return Sifted(parsed.spec, later=later)
    except WireError:
        pass
    stored = table.get("spec")
    raws = stored.get("rows") if isinstance(stored, dict) else None
    if not isinstance(raws, list) or not all(isinstance(raw, dict) for raw in raws):
        spec = PartitionTable.parse_stored(table).spec
        raise WireError(f"PartitionTable {_name(table)}: {_wrong(spec)}")
    damaged: list[tuple[DamagedRow, Json]] = []
    sound: list[Json] = []
    for raw in raws:
        why = _why_none(table, raw)
        if why:
            damaged.append((_damaged(table, raw, why), raw))
        else:
            sound.append(raw)
    parsed, later = PartitionTable.parse_known(_with_rows(table, sound))
    return Sifted(parsed.spec, tuple(damaged), later)


def all_damaged(table: str, shard: int, why: str) -> tuple[DamagedRow, ...]:
    """Return one damaged row for each partition of a shard whose object cannot be read."""
    first = shard * SHARD_PARTITIONS
    about = f"PartitionTable {table} cannot be read: {why}"
    every = range(first, first + SHARD_PARTITIONS)
    return tuple(DamagedRow(partition, UNREADABLE, UNREADABLE, about) for partition in every)


def _why_none(table: Mapping[str, Any], raw: Json) -> str:
    try:
        return _wrong(PartitionTable.parse_stored(_with_rows(table, [raw])).spec)
    except WireError as error:
        # Read alone it is the first row, of an object that is named beside it.
        why = str(error).removeprefix(f"PartitionTable {_name(table)}: ")
        return why.replace(_FIRST_ROW, "", 1)


def _wrong(spec: PartitionTableSpec) -> str:
    """Return what is wrong with the first invalid row; empty if all are valid."""
    first = (spec.shard or 0) * SHARD_PARTITIONS
    for row in spec.rows or ():
        if not first <= row.partition < first + SHARD_PARTITIONS:
            return f"partition {row.partition} is none of shard {spec.shard}"
        try:
            check_row(partition_row(row))
        except (InvariantError, IndexError) as error:
            return str(error) or f"partition {row.partition}: no replicas"
    return ""


def _damaged(table: Mapping[str, Any], raw: Json, why: str) -> DamagedRow:
    numbers = [raw.get(field) for field in ("partition", "version", "term")]
    partition, version, term = [each if isinstance(each, int) else UNREADABLE for each in numbers]
    about = f"PartitionTable {_name(table)}, row of partition {raw.get('partition')}: {why}"
    return DamagedRow(partition, version, term, about)


def _with_rows(table: Mapping[str, Any], rows: list[Json]) -> Json:
    return {**table, "spec": {**table["spec"], "rows": rows}}


def _name(table: Mapping[str, Any]) -> str:
    return str(table["metadata"]["name"])
