"""Values of any struct, made from its definition alone: the same in every build."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect


def sample(kind: type, *, full: bool) -> Any:
    """A value of a struct: every field filled, no two alike, or only those that have no default."""
    return _struct(inspect.type_info(kind), itertools.count(1), full=full)


def _struct(of: Any, numbers: Iterator[int], *, full: bool) -> Any:
    assert isinstance(of, inspect.StructType)
    fields = {
        field.name: _value(field.type, numbers, full=full)
        for field in of.fields
        if full or field.required
    }
    return of.cls(**fields)


def _value(of: Any, numbers: Iterator[int], *, full: bool) -> Any:
    match of:
        case inspect.IntType():
            return next(numbers)
        case inspect.StrType():
            return f"text-{next(numbers)}"
        case inspect.BytesType():
            return b"bytes-%d" % next(numbers)
        case inspect.BoolType():
            return True
        case inspect.EnumType(cls=cls):
            return list(cls)[-1]
        case inspect.UnionType(types=types):
            filled = [each for each in types if not isinstance(each, inspect.NoneType)]
            return _value(filled[0], numbers, full=full)
        case inspect.VarTupleType(item_type=item):
            return tuple(_value(item, numbers, full=full) for _ in range(2 if full else 1))
        case inspect.TupleType(item_types=items):
            return tuple(_value(item, numbers, full=full) for item in items)
        case inspect.DictType(key_type=key, value_type=value):
            return {_value(key, numbers, full=full): _value(value, numbers, full=full)}
        case inspect.StructType():
            return _struct(of, numbers, full=full)
        case _:
            raise TypeError(f"no sample of {of}")


def same(then: Any, now: Any) -> bool:
    """Whether two builds read the same: fields that only the later one has are not compared."""
    if isinstance(then, msgspec.Struct):
        return all(same(getattr(then, name), getattr(now, name)) for name in then.__struct_fields__)
    if isinstance(then, tuple):
        return len(then) == len(now) and all(map(same, then, now))
    if isinstance(then, dict):
        return then.keys() == now.keys() and all(same(then[key], now[key]) for key in then)
    return bool(then == now)
