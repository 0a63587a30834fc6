"""A build of before as it was recorded: its structs made anew, its frames."""

import enum
import json
from collections.abc import Iterable
from functools import reduce
from operator import or_
from pathlib import Path
from types import GenericAlias
from typing import Any

import msgspec

FOLDER = Path(__file__).parent.parent / "unit/core/recorded_formats"
_PLAIN = {"int": int, "str": str, "bytes": bytes, "bool": bool, "none": None}


class Recorded:
    """One build.  `messages` and the others: by the name of the struct, a frame with every field
    filled and one with only the required ones."""

    def __init__(self, file: Path) -> None:
        read = json.loads(file.read_text())
        self.build: str = read["build"]
        self.format: int = read["format"]
        self.definitions: dict[str, Any] = read["structs"]
        self.enums: dict[str, list[str]] = read["enums"]
        self.messages: dict[str, list[bytes]] = _bytes_of(read["messages"])
        self.records: dict[str, list[bytes]] = _bytes_of(read["records"])
        self.ownership: dict[str, list[str]] = read["ownership"]
        self._made: dict[str, type] = {}

    def __repr__(self) -> str:
        return self.build

    def struct(self, name: str) -> type:
        """One of its structs."""
        made = self._made.get(name)
        if made is None:
            about = self.definitions[name]
            fields = [self._field(*words) for words in about["fields"]]
            made = self._made[name] = msgspec.defstruct(
                name, fields, frozen=True, array_like=about["array"], tag=about["tag"]
            )
        return made

    def message_decoder(self) -> msgspec.msgpack.Decoder[Any]:
        """Decodes any of its messages."""
        return msgspec.msgpack.Decoder(_any_of(map(self.struct, self.messages)))

    def decode(self, name: str, data: bytes | str) -> Any:
        """Decode a record, or JSON, as its struct `name`."""
        module = msgspec.json if isinstance(data, str) else msgspec.msgpack
        return module.decode(data, type=self.struct(name))

    def _field(self, name: str, words: Any, *default: Any) -> Any:
        kind = self._type(words)
        return (name, kind, msgspec.convert(default[0], kind)) if default else (name, kind)

    def _type(self, words: Any) -> Any:
        if isinstance(words, str):
            return _PLAIN[words]
        kind, *inner = words
        match kind:
            case "struct":
                return self.struct(inner[0])
            case "enum":
                return enum.StrEnum(inner[0], {each: each for each in self.enums[inner[0]]})
            case "union":
                return _any_of(map(self._type, inner))
            case "tuple of":
                return GenericAlias(tuple, (self._type(inner[0]), ...))
            case "tuple":
                return GenericAlias(tuple, tuple(map(self._type, inner)))
            case "dict":
                return GenericAlias(dict, tuple(map(self._type, inner)))
            case _:
                raise ValueError(f"no type is called {kind!r}")


def _any_of(types: Iterable[Any]) -> Any:
    return reduce(or_, types)


def _bytes_of(frames: dict[str, list[str]]) -> dict[str, list[bytes]]:
    return {name: [bytes.fromhex(each) for each in both] for name, both in frames.items()}


def recorded_builds() -> list[Recorded]:
    """All that are kept, oldest first."""
    return [Recorded(file) for file in sorted(FOLDER.glob("*.json"))]
