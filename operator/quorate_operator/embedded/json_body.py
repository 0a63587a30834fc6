"""Reads the JSON object in a request's body; refuses what could not be stored or returned.

Anybody who reaches the port can send a body.  A value that passes can be validated and encoded
without surprises: nesting is bounded, no object has a name twice, numbers are finite and of bounded
length, and texts are Unicode.
"""

import json
from typing import Any, NoReturn

from quorate.facts.errors import WireError

NESTED_MAX = 32
"""Levels of objects and lists; manifests need six.  A recursive walk is safe within it."""

DIGITS_MAX = 100
"""Digits of an integer: more than any field takes, fewer than Python refuses to parse."""


def read_object(body: bytes) -> dict[str, Any]:
    """Parse `body`, JSON in UTF-8.  Raises WireError with a sentence for the sender."""
    try:
        found = json.loads(
            body.decode(),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
        )
    except UnicodeDecodeError as error:
        raise WireError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise WireError(f"the body is not JSON: {error}") from error
    except RecursionError:
        raise WireError(_NESTED) from None
    if not isinstance(found, dict):
        raise WireError("the body is not a manifest: write a JSON object")
    _check(found)
    return found


_NESTED = f"the body is nested deeper than {NESTED_MAX} levels: write a manifest"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise WireError(f"the body has {name[:80]!r} twice in one object: write it once")
            seen.add(name)
    return made


def _constant(text: str) -> NoReturn:
    raise WireError(f"the body has {text}, which is not JSON: write a number")


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise WireError(f"the body has a number of {len(text)} digits: write {DIGITS_MAX} at most")
    return int(text)


def _check(found: dict[str, Any]) -> None:
    """Refuse deep nesting, and texts that UTF-8 cannot encode; without recursion."""
    level: list[Any] = [found]
    for _ in range(NESTED_MAX):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.keys()
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str) and not _is_unicode(value):
                raise WireError(f"the body has half a surrogate pair in {value[:80]!r}: remove it")
        if not inner:
            return
        level = inner
    raise WireError(_NESTED)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
