"""A zone's filter of its data nodes as a JSONPath query; node_filter.py says which are allowed."""

import re

from jsonpath import JSONPathEnvironment
from jsonpath.exceptions import JSONPathError
from jsonpath.filter import (
    BaseExpression,
    FilterExpression,
    FilterExpressionLiteral,
    InfixExpression,
    PrefixExpression,
    RelativeFilterQuery,
)
from jsonpath.path import JSONPath
from jsonpath.segments import JSONPathChildSegment
from jsonpath.selectors import Filter, NameSelector

from quorate.planning.target.label_selector import FilterError, Requirement

_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?", re.ASCII)
_FORMS = "write $[?(@.NAME == 'VALUE')], or $..* for all nodes"
_ORDERS = ("<", "<=", ">", ">=")


class _Environment(JSONPathEnvironment):
    """RFC 9535 without functions: `match` and `search` could search for ever."""

    def setup_function_extensions(self) -> None:
        """Register no function."""

    def compare(self, left: object, operator: str, right: object) -> bool:
        """Compare attributes, which are text, with literals and with each other."""
        if isinstance(left, str) and isinstance(right, str):
            if operator in _ORDERS:
                numbers = _number(left), _number(right)
                left, right = numbers if None not in numbers else (left, right)
        elif isinstance(left, str):
            left = _like(right, left)
        elif isinstance(right, str):
            right = _like(left, right)
        return super().compare(left, operator, right)


def _like(other: object, text: str) -> object:
    """Return `text` as a value of the kind of `other`; `text` itself if it is none of that kind."""
    if isinstance(other, bool):
        return {"true": True, "false": False}.get(text, text)
    number = _number(text) if isinstance(other, int | float) else None
    return text if number is None else number


def _number(text: str) -> int | float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    return float(text) if "." in text else int(text)


_ENVIRONMENT = _Environment(strict=True)


def json_path(text: str) -> Requirement:
    """Return the filter that `text` writes.  Raise FilterError."""
    is_jayway = text.startswith("$.[")
    written = "$" + text[2:] if is_jayway else text
    try:
        path = _ENVIRONMENT.compile(written)
    except JSONPathError as error:
        if error.token is None:
            raise FilterError("it is nested too deeply: write a shorter one") from error
        at = error.token.index + 1 + is_jayway
        raise FilterError(f"at character {at}: {error.args[0]}") from error
    except (ArithmeticError, RecursionError) as error:
        raise FilterError("a number in it is too large, or it is nested too deeply") from error
    segments = path.segments if isinstance(path, JSONPath) else ()
    selectors = segments[0].selectors if len(segments) == 1 else ()
    if len(selectors) != 1 or not isinstance(selectors[0], Filter):
        raise FilterError(f"it is not one filter over the attributes of a node: {_FORMS}")
    try:
        _check_is_plain(selectors[0].expression)
    except RecursionError as error:
        raise FilterError("it is nested too deeply: write a shorter one") from error
    # The filter looks at the elements of an array: the only one is the node.
    return lambda attributes: path.match([dict(attributes)]) is not None


def _check_is_plain(expression: BaseExpression) -> None:
    """Raise FilterError unless the expression only compares single attributes.

    Queries inside of a filter cost time that is exponential in their depth.
    """
    if isinstance(expression, RelativeFilterQuery):
        segments = expression.path.segments
        selectors = segments[0].selectors if len(segments) == 1 else ()
        is_child = bool(segments) and isinstance(segments[0], JSONPathChildSegment)
        if not is_child or len(selectors) != 1 or not isinstance(selectors[0], NameSelector):
            raise FilterError(
                f"it holds {expression}, which is not one attribute: write @.NAME or @['NAME']"
            )
        return
    if not isinstance(expression, _PLAIN):
        raise FilterError(
            f"it holds {expression}, which is neither an attribute of a node nor a value: {_FORMS}"
        )
    for each in expression.children():
        _check_is_plain(each)


_PLAIN = (FilterExpression, FilterExpressionLiteral, InfixExpression, PrefixExpression)
