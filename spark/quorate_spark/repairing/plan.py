"""The plan of a repair: one row per key that was confirmed to differ, as a Parquet file.

A person reads it, in any tool that reads Parquet, and may remove rows; the repair executes what is
left.  Values are not in it, only their digests: the row is taken from a copy that has it when the
plan is executed.  Columns:

- `zone`, `zone_uid`, `cluster`, `strategy`, `planned_at`: the same in every row
- `partition`; `key` for people (escaped), `key_hex` exact; `differs`: what differs
- `action` (write, remove, irreparable) and `reason`
- `new_value_bytes`, `new_value_sha256`, `new_expires_at`: the row that is written; null for none
- `right`: the nodes whose copies have that already
- `primary`, `primary_counter`, `primary_term`: its row, which must be there still (term 0: none)
- `settled_upto`: every copy held all updates up to this counter
- `copies`: the row of each copy
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from quorate.facts.errors import QuorateError
from quorate_spark.repairing.decide import Action, Strategy, decide
from quorate_spark.verdict import CopyRow, KeyDifference


class PlanRefused(QuorateError):
    """A file cannot be written or executed as a plan; the message is one sentence."""


class PlannedKey(msgspec.Struct, frozen=True):
    """One key of a plan; the fields are the columns above."""

    zone: str
    zone_uid: str
    cluster: str
    strategy: Strategy
    planned_at: str
    partition: int
    key: str
    key_hex: str
    differs: tuple[str, ...]
    action: Action
    reason: str
    new_value_bytes: int | None
    new_value_sha256: str | None
    new_expires_at: int | None
    right: tuple[str, ...]
    primary: str
    primary_counter: int
    primary_term: int
    settled_upto: int
    copies: tuple[CopyRow, ...]

    def version_on(self, node: str) -> tuple[int, int] | None:
        """Return (counter, term) that a repair through `node` expects; None: it has no copy.

        Term 0: it has no row, and the counter is the one up to which nothing wrote the key.
        """
        copy = next((copy for copy in self.copies if copy.node == node), None)
        if copy is None:
            return None
        return (copy.counter, copy.term) if copy.present else (self.settled_upto, 0)

    def is_new_row(self, row: CopyRow) -> bool:
        """Return whether a copy's row is the one that is written."""
        return row.present and (row.value_bytes, row.value_sha256, row.expires_at) == (
            self.new_value_bytes,
            self.new_value_sha256,
            self.new_expires_at,
        )


class Planned(msgspec.Struct, frozen=True):
    """The facts that are the same for all keys of a plan."""

    zone: str
    zone_uid: str
    cluster: str
    strategy: Strategy
    planned_at: str


class PlanOrigin(msgspec.Struct, frozen=True):
    """The run that made a plan, by name, and why another plan may be needed after it."""

    run: str
    reasons: tuple[str, ...] = ()


_ORIGIN = b"quorate.origin"
"""Where the file has it, beside the schema."""


def plan_keys(differences: Sequence[KeyDifference], planned: Planned) -> list[PlannedKey]:
    """Return the plan, in order of partition and key."""
    ordered = sorted(differences, key=lambda each: (each.partition, bytes.fromhex(each.key_hex)))
    return [_planned(difference, planned) for difference in ordered]


def _planned(difference: KeyDifference, planned: Planned) -> PlannedKey:
    decision = decide(difference, planned.strategy)
    row = decision.row
    primary = next((copy for copy in difference.copies if copy.replica_index == 0), None)
    key = PlannedKey(
        planned.zone,
        planned.zone_uid,
        planned.cluster,
        planned.strategy,
        planned.planned_at,
        difference.partition,
        difference.key,
        difference.key_hex,
        difference.what,
        decision.action,
        decision.reason,
        row.value_bytes if row is not None else None,
        row.value_sha256 if row is not None else None,
        row.expires_at if row is not None else None,
        decision.right,
        primary.node if primary is not None else "",
        0,
        0,
        difference.settled_upto,
        difference.copies,
    )
    counter, term = key.version_on(key.primary) or (difference.settled_upto, 0)
    return msgspec.structs.replace(key, primary_counter=counter, primary_term=term)


def encode_plan(keys: Sequence[PlannedKey], origin: PlanOrigin | None = None) -> bytes:
    """Return the contents of a plan's file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    if origin is not None:
        schema = schema.with_metadata({_ORIGIN: msgspec.json.encode(origin)})
    file = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([msgspec.to_builtins(key) for key in keys], schema), file)
    return bytes(file.getvalue())


def write_plan(path: Path, keys: Sequence[PlannedKey]) -> None:
    """Write a plan.  Raises PlanRefused if the file is there already or cannot be written."""
    data = encode_plan(keys)
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        raise PlanRefused(f"{path} is there already: name another file with --plan") from None
    except OSError as error:
        raise PlanRefused(f"{path} cannot be written: {error.strerror}") from error


def read_plan(path: Path) -> list[PlannedKey]:
    """Return the keys of a plan.  Raises PlanRefused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PlanRefused(f"{path} cannot be read: {error.strerror or error}") from error
    return decode_plan(data, str(path))


def decode_plan(data: bytes, path: str) -> list[PlannedKey]:
    """Return the keys in the contents of a plan's file; `path` names it.  Raises PlanRefused."""
    read = _table(data, path).to_pylist()
    try:
        keys = msgspec.convert(read, list[PlannedKey])
        for key in keys:
            bytes.fromhex(key.key_hex)
    except (msgspec.ValidationError, ValueError) as error:
        raise PlanRefused(f"{path} is no plan of `quorate repair`: {error}") from error
    if len({_common(key) for key in keys}) > 1:
        raise PlanRefused(f"{path} is of several plans: execute each alone")
    if len({(key.partition, key.key_hex) for key in keys}) < len(keys):
        raise PlanRefused(f"{path} has a key twice")
    return keys


def origin_of(data: bytes, path: str) -> PlanOrigin | None:
    """Return the origin of a plan that a ZoneRepair has made; None: it is another one's.

    Raises PlanRefused if it is no Parquet file.
    """
    told = (_table(data, path).schema.metadata or {}).get(_ORIGIN)
    try:
        return msgspec.json.decode(told, type=PlanOrigin) if told is not None else None
    except msgspec.DecodeError:
        return None


def _table(data: bytes, path: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(pa.BufferReader(data))
    except (OSError, pa.ArrowException) as error:
        raise PlanRefused(f"{path} is no Parquet file: {error}") from error


def _common(key: PlannedKey) -> tuple[str, ...]:
    return key.zone, key.zone_uid, key.cluster, key.strategy


def _schema() -> Any:
    import pyarrow as pa

    texts = pa.list_(pa.string())
    copy = pa.struct(
        [
            ("node", pa.string()),
            ("replica_index", pa.int32()),
            ("present", pa.bool_()),
            ("counter", pa.int64()),
            ("term", pa.int64()),
            ("expires_at", pa.int64()),
            ("tombstone", pa.bool_()),
            ("value_bytes", pa.int64()),
            ("value_sha256", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("zone", pa.string()),
            ("zone_uid", pa.string()),
            ("cluster", pa.string()),
            ("strategy", pa.string()),
            ("planned_at", pa.string()),
            ("partition", pa.int32()),
            ("key", pa.string()),
            ("key_hex", pa.string()),
            ("differs", texts),
            ("action", pa.string()),
            ("reason", pa.string()),
            ("new_value_bytes", pa.int64()),
            ("new_value_sha256", pa.string()),
            ("new_expires_at", pa.int64()),
            ("right", texts),
            ("primary", pa.string()),
            ("primary_counter", pa.int64()),
            ("primary_term", pa.int64()),
            ("settled_upto", pa.int64()),
            ("copies", pa.list_(copy)),
        ]
    )
