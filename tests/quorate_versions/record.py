"""Write down how this build's messages and records look: `python -m quorate_versions.record NAME`.

Run with the sources of the build that is to be recorded before these on the path.  What comes out
is read by later builds (recorded.py): they must understand each frame, and be understood.
"""

import json
import sys
from typing import Any, get_args

import msgspec
from msgspec import inspect

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import NodeRecord
from quorate.facts.zone import ZoneRecord
from quorate.protocol.copies.record import CopyRecord, KeptRows, PromiseRecord
from quorate.protocol.messages.handshake import FORMAT_VERSION, Challenge, Proof
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.transactions import Decision, Part
from quorate_versions.samples import sample

MESSAGES: tuple[type, ...] = (*get_args(Message), Challenge, Proof)
RECORDS: tuple[type, ...] = (Update, CopyRecord, PromiseRecord, KeptRows, Part, Decision)
"""What agents store, beside rows of clients."""
OWNERSHIP: tuple[type, ...] = (PartitionRow, NodeRecord, ZoneRecord)
"""What the embedded operator stores, as JSON."""


class Definitions:
    """Structs and enums, each once, with the types of their fields in words."""

    def __init__(self) -> None:
        self.structs: dict[str, Any] = {}
        self.enums: dict[str, list[str]] = {}

    def add(self, kind: type) -> None:
        """Add a struct, and all that it is made of."""
        self._words(inspect.type_info(kind))

    def _words(self, of: Any) -> Any:
        match of:
            case inspect.StructType():
                name = of.cls.__name__
                if name not in self.structs:
                    self.structs[name] = {"tag": of.tag, "array": of.array_like, "fields": []}
                    self.structs[name]["fields"] = [self._field(each) for each in of.fields]
                return ["struct", name]
            case inspect.EnumType(cls=cls):
                self.enums[cls.__name__] = [member.value for member in cls]
                return ["enum", cls.__name__]
            case inspect.UnionType(types=types):
                return ["union", *map(self._words, types)]
            case inspect.VarTupleType(item_type=item):
                return ["tuple of", self._words(item)]
            case inspect.TupleType(item_types=items):
                return ["tuple", *map(self._words, items)]
            case inspect.DictType(key_type=key, value_type=value):
                return ["dict", self._words(key), self._words(value)]
            case _:
                return type(of).__name__.removesuffix("Type").lower()

    def _field(self, field: inspect.Field) -> list[Any]:
        words = [field.name, self._words(field.type)]
        if field.required:
            return words
        default = field.default
        if default is msgspec.NODEFAULT:
            default = field.default_factory()
        return [*words, msgspec.to_builtins(default)]


def record(name: str) -> dict[str, Any]:
    """All of it, as JSON values."""
    definitions = Definitions()
    for kind in (*MESSAGES, *RECORDS, *OWNERSHIP):
        definitions.add(kind)
    return {
        "build": name,
        "format": FORMAT_VERSION,
        "structs": definitions.structs,
        "enums": definitions.enums,
        "messages": {kind.__name__: _encoded(kind) for kind in MESSAGES},
        "records": {kind.__name__: _encoded(kind) for kind in RECORDS},
        "ownership": {
            kind.__name__: [
                msgspec.json.encode(sample(kind, full=full)).decode() for full in (True, False)
            ]
            for kind in OWNERSHIP
        },
    }


def _encoded(kind: type) -> list[str]:
    return [msgspec.msgpack.encode(sample(kind, full=full)).hex() for full in (True, False)]


def main() -> None:
    """Print it: one line for each definition and each frame."""
    recorded = record(sys.argv[1])
    lines = []
    for key, value in recorded.items():
        if isinstance(value, dict):
            inner = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value[name])}" for name in value)
            lines.append(f"{json.dumps(key)}: {{\n{inner}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
