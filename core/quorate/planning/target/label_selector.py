"""Label selectors as in Kubernetes: `region=EU,disk in (ssd,nvme),!spare`.

All requirements must hold. A missing attribute is unequal to every value. Source: Kubernetes,
"Labels and Selectors".
"""

import re
from collections.abc import Callable, Mapping

FILTER_LENGTH_MAX = 1024

_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
NAME = f"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_WORD}"
VALUE = f"({_WORD})?"
"""Names and values of attributes are those of labels."""

_VALUES = f"[(] *({_WORD} *)?(, *({_WORD} *)?)*[)]"
_REQUIREMENT = f" *(! *{NAME}|{NAME}( *(==?|!=)( *{_WORD})?| +(in|notin) *{_VALUES})?) *"
SELECTOR = f"{_REQUIREMENT}(,{_REQUIREMENT})*"
"""Form of a label selector, for a rule of the API server, which cannot say where an error is."""

_NAME, _VALUE, _BLANKS = re.compile(NAME), re.compile(VALUE), re.compile(" *")
_OPERATOR = re.compile("==|!=|=|(?:in|notin)(?![-A-Za-z0-9_./])")

Attributes = Mapping[str, str]
Requirement = Callable[[Attributes], bool]


class FilterError(ValueError):
    """A filter that cannot be read; the message says where and why."""


def label_selector(text: str) -> list[Requirement]:
    """Return the requirements of a label selector, all of which must hold. Raise FilterError."""
    return _Selector(text).read()


class _Selector:
    """The text of a label selector, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> list[Requirement]:
        """Return the requirements, all of which must hold."""
        requirements = [self._requirement()]
        while self._takes(","):
            requirements.append(self._requirement())
        if self._rest:
            raise self._error("a comma or the end")
        return requirements

    def _requirement(self) -> Requirement:
        if self._takes("!"):
            absent = self._name()
            return lambda attributes: absent not in attributes
        name = self._name()
        operator = self._take(_OPERATOR)
        if operator == "":
            if self._rest and not self._rest.startswith(","):
                raise self._error("=, !=, in (…), notin (…), a comma or the end")
            return lambda attributes: name in attributes
        is_wanted = operator in ("=", "==", "in")
        values = self._values() if operator in ("in", "notin") else {self._take(_VALUE)}
        if is_wanted:
            return lambda attributes: attributes.get(name) in values
        return lambda attributes: attributes.get(name) not in values

    def _values(self) -> set[str]:
        if not self._takes("("):
            raise self._error("values in parentheses")
        values = {self._take(_VALUE)}
        while self._takes(","):
            values.add(self._take(_VALUE))
        if not self._takes(")"):
            raise self._error("a comma or )")
        return values

    def _name(self) -> str:
        name = self._take(_NAME)
        if not name:
            raise self._error("the name of an attribute")
        return name

    @property
    def _rest(self) -> str:
        """The rest that is not read yet, without blanks before it."""
        blanks = _BLANKS.match(self._text, self._at)
        self._at = blanks.end() if blanks is not None else self._at
        return self._text[self._at :]

    def _takes(self, sign: str) -> bool:
        is_next = self._rest.startswith(sign)
        self._at += len(sign) if is_next else 0
        return is_next

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._rest)
        word = found.group() if found is not None else ""
        self._at += len(word)
        return word

    def _error(self, wanted: str) -> FilterError:
        found = f"{self._rest[0]!r}" if self._rest else "the end"
        return FilterError(f"at character {self._at + 1}: {wanted} is expected, not {found}")
