"""Keeps fields of stored records that a later version of the operator wrote.

A field belongs to the record it was found in: a version of a row, a start of an agent, a zone.  If
this operator writes the same record again, it writes the field too.  A row that it changes, or an
agent that it registers anew, has no such field, which the later version reads as the default.
"""

from collections.abc import Hashable, Iterator
from typing import Any

from quorate.protocol.metastore import Key
from quorate.wire.schema.resource import Part
from quorate.wire.schema.unknown_fields import UnknownField, put_back

Json = dict[str, Any]


class LaterFields:
    """The later fields of all records that were read last."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[Hashable, list[UnknownField]]] = {}

    def note(self, key: Key, read: Part, unknown: tuple[UnknownField, ...]) -> None:
        """Note the fields that the object of `key` has beside the spec that was read."""
        if not unknown:
            self._by_key.pop(key, None)
            return
        spec = dump(read)
        found: dict[Hashable, list[UnknownField]] = {}
        for field in unknown:
            match field.path:
                case ("spec", "rows", int() as index, *rest) if rest:
                    record, path = spec["rows"][index], tuple(rest)
                case ("spec", *rest) if rest:
                    record, path = spec, tuple(rest)
                case _:
                    continue
            found.setdefault(_identity(record), []).append(UnknownField(path, field.value))
        self._by_key[key] = found

    def keys(self) -> frozenset[Key]:
        """Return the keys of the objects that have such fields."""
        return frozenset(self._by_key)

    def forget(self, key: Key) -> None:
        """Forget the fields of an object that is deleted."""
        self._by_key.pop(key, None)

    def put_back(self, key: Key, spec: Json) -> None:
        """Add to `spec`, which is about to be written, the later fields of its records."""
        found = self._by_key.get(key)
        if found:
            for record in _records(spec):
                put_back(record, found.get(_identity(record), ()))


def dump(spec: Part) -> Json:
    """Return a spec in the form in which it is written."""
    return spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def _records(spec: Json) -> Iterator[Json]:
    yield spec
    yield from spec.get("rows", ())


def _identity(record: Json) -> Hashable:
    """Return what distinguishes a record from a later one in its place."""
    if "version" in record:
        return ("row", record.get("partition"), record["version"])
    if "incarnation" in record:
        return ("node", record.get("storeId"), record["incarnation"], record.get("process"))
    return ("table", record.get("shard"))
