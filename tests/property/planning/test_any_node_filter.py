"""Filters of data nodes against a simple model, and that any text is read or refused."""

import re
from collections.abc import Callable, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.planning.target.label_selector import SELECTOR, FilterError, label_selector
from quorate.planning.target.node_filter import node_filter

Attributes = Mapping[str, str]
Model = tuple[str, Callable[[Attributes], bool]]

NAMES = ("region", "disk", "kubernetes.io/zone")
VALUES = ("EU", "US", "3", "10", "")
NUMBERS = (3, 9, 10)

names, values, numbers = map(st.sampled_from, (NAMES, VALUES, NUMBERS))
attributes = st.dictionaries(names, values)
repeatable = settings(derandomize=True, max_examples=250, deadline=None)


@st.composite
def requirements(draw: st.DrawFn) -> Model:
    """A requirement of a label selector, and what it means."""
    name, value = draw(names), draw(values)
    several = draw(st.lists(values, min_size=1, max_size=3))
    inside = f"({','.join(several)})"
    blank = draw(st.sampled_from(("", " ")))
    kinds: list[Model] = [
        (name, lambda of: name in of),
        (f"!{blank}{name}", lambda of: name not in of),
        (f"{name}{blank}={blank}{value}", lambda of: of.get(name) == value),
        (f"{name}{blank}=={value}", lambda of: of.get(name) == value),
        (f"{name}!={blank}{value}", lambda of: of.get(name) != value),
        (f"{name} in{blank}{inside}", lambda of: name in of and of[name] in several),
        (f"{name} notin {inside}", lambda of: name not in of or of[name] not in several),
    ]
    return draw(st.sampled_from(kinds))


@repeatable
@given(st.lists(requirements(), min_size=1, max_size=4), attributes)
def test_a_label_selector_is_the_conjunction_of_its_requirements(
    several: list[Model], of: dict[str, str]
) -> None:
    text = ",".join(each for each, _ in several)

    assert node_filter(text).matches(of) == all(holds(of) for _, holds in several)
    assert re.fullmatch(SELECTOR, text), "the API server takes it"


def _as_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


@st.composite
def comparisons(draw: st.DrawFn) -> Model:
    """A term of a JSONPath filter, and what it means."""
    name, value, number = draw(names), draw(values), draw(numbers)
    node = f"@['{name}']"
    kinds: list[Model] = [
        (node, lambda of: name in of),
        (f"!{node}", lambda of: name not in of),
        (f"{node} == '{value}'", lambda of: of.get(name) == value),
        (f"{node} != '{value}'", lambda of: of.get(name) != value),
        (f"{node} == {number}", lambda of: _as_number(of.get(name)) == number),
        (f"{node} != {number}", lambda of: _as_number(of.get(name)) != number),
        (f"{node} < {number}", lambda of: (_as_number(of.get(name)) or number) < number),
        (f"{node} >= {number}", lambda of: (_as_number(of.get(name)) or 0) >= number),
        (f"{number} > {node}", lambda of: (_as_number(of.get(name)) or number) < number),
    ]
    return draw(st.sampled_from(kinds))


def _joined(sides: tuple[Model, Model, bool]) -> Model:
    (one, is_one), (other, is_other), is_and = sides
    if is_and:
        return f"({one} && {other})", lambda of: is_one(of) and is_other(of)
    return f"({one} || {other})", lambda of: is_one(of) or is_other(of)


expressions = st.recursive(
    comparisons(),
    lambda inner: st.tuples(inner, inner, st.booleans()).map(_joined),
    max_leaves=6,
)


@repeatable
@given(expressions, attributes, st.sampled_from(("$[?{}]", "$.[?({})]")))
def test_a_json_path_is_its_expression(expression: Model, of: dict[str, str], form: str) -> None:
    text, holds = expression

    assert node_filter(form.format(text)).matches(of) == holds(of)


TEXTS = st.text(alphabet="$.[]?()@!=<>&|'\"*, -1aEin\\", max_size=30)


@repeatable
@given(st.builds(str.__add__, st.sampled_from(("", "$", "$[?", "$[?@.a", "a in (")), TEXTS))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    error = ""
    try:
        node_filter(text).matches({"a": "1"})
    except FilterError as raised:
        error = str(raised)

    assert error.startswith(("at character ", "it ", "a number in it ")) or not error


SELECTORS = st.lists(
    st.sampled_from(("a", "b.c/D", "!", "=", "==", "!=", " ", ",", "in", "notin", "(", ")", "-")),
    max_size=12,
).map("".join)


@repeatable
@given(SELECTORS)
def test_the_api_server_takes_the_label_selectors_that_can_be_read(text: str) -> None:
    is_read = True
    try:
        label_selector(text)
    except FilterError:
        is_read = False

    assert (re.fullmatch(SELECTOR, text) is not None) == is_read
