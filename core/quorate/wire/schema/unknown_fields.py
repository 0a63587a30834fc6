"""Fields of stored objects that this version does not know: a later one wrote them.

What users send is checked strictly, for an unknown field is a slip of the pen.  What is stored has
been checked by the version that wrote it: there an unknown field is ignored.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import pydantic
from pydantic import BaseModel

Json = dict[str, Any]
Path = tuple[int | str, ...]


class UnknownField(NamedTuple):
    """One field, by its path from the object's root, and what stands there."""

    path: Path
    value: Any


class Known(NamedTuple):
    """An object without the fields that its model does not know, and those."""

    body: Json
    unknown: tuple[UnknownField, ...]


def without_unknown(model: type[BaseModel], body: Mapping[str, Any]) -> Known:
    """Take the fields that `model` does not know out of an object; `body` stays as it is."""
    try:
        model.model_validate(body)
    except pydantic.ValidationError as error:
        paths = [each["loc"] for each in error.errors() if each["type"] == "extra_forbidden"]
    else:
        paths = []
    if not paths:
        return Known(dict(body), ())
    known = deepcopy(dict(body))
    taken = [_take(known, path) for path in paths]
    return Known(known, tuple(field for field in taken if field is not None))


def put_back(part: Json, fields: Iterable[UnknownField]) -> None:
    """Write fields into `part`, by their path from it, where what they lie in is there."""
    for field in fields:
        at = _find(part, field.path[:-1])
        if isinstance(at, dict):
            at.setdefault(field.path[-1], field.value)


def _take(body: Json, path: Path) -> UnknownField | None:
    at = _find(body, path[:-1])
    if not isinstance(at, dict) or path[-1] not in at:
        return None
    return UnknownField(path, at.pop(path[-1]))


def _find(at: Any, path: Path) -> Any:
    for step in path:
        if isinstance(at, dict):
            at = at.get(step)
        elif isinstance(at, list) and isinstance(step, int) and step < len(at):
            at = at[step]
        else:
            return None
    return at
