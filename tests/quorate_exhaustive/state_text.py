"""The value of an object graph, whatever its identities: states with equal text behave alike."""

import enum
from collections import deque
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

import msgspec

_CODE = (BuiltinMethodType, FunctionType, MethodType, type)

_LEFT_OUT = {"_Log": ("_before", "end"), "SharedLeases": ("_by_grants",)}
"""Fields that tell nothing more: sums from some moment in the past on, and an index of leases,
each of which belongs to a role."""


def state_text(root: object) -> bytes:
    """A canonical text of everything reachable from `root`, methods left out.

    The order of a dict's keys is not part of it: it decides at most the order of messages that are
    sent together, and every order of those is explored.
    """
    out: list[str] = []
    _write(root, out, {})
    return "".join(out).encode()


def _write(value: Any, out: list[str], seen: dict[int, int]) -> None:
    if value is None or isinstance(value, (bool, int, float, str, bytes, enum.Enum)):
        out.append(repr(value))
        return
    if isinstance(value, _CODE):
        return
    if isinstance(value, msgspec.Struct):
        out.append(type(value).__name__)
        _items([getattr(value, name) for name in value.__struct_fields__], out, seen)
        return
    if isinstance(value, tuple):
        _items(value, out, seen)
        return
    if id(value) in seen:
        out.append(f"#{seen[id(value)]}")
        return
    seen[id(value)] = len(seen)
    if isinstance(value, (list, deque)):
        _items(value, out, seen)
    elif isinstance(value, (set, frozenset)):
        _items(sorted(value, key=repr), out, seen)
    elif isinstance(value, dict):
        out.append("{")
        for key in sorted(value, key=repr):
            _write(key, out, seen)
            out.append(":")
            _write(value[key], out, seen)
        out.append("}")
    else:
        out.append(type(value).__name__)
        _items([getattr(value, name, None) for name in _fields(type(value), value)], out, seen)


def _items(values: Any, out: list[str], seen: dict[int, int]) -> None:
    out.append("(")
    for value in values:
        _write(value, out, seen)
        out.append(",")
    out.append(")")


def _fields(owner: type, value: object) -> list[str]:
    slots = [name for base in owner.__mro__ for name in getattr(base, "__slots__", ())]
    left_out = _LEFT_OUT.get(owner.__name__, ())
    return [
        name for name in [*slots, *sorted(getattr(value, "__dict__", ()))] if name not in left_out
    ]
