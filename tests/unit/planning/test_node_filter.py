"""A zone's filter: which attributes match, and where a filter is wrong."""

import pytest

from quorate.planning.target.label_selector import FILTER_LENGTH_MAX, FilterError
from quorate.planning.target.node_filter import node_filter

US = {"region": "US", "storage": "SSD", "size": "10", "topology.kubernetes.io/zone": "a"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("region", True),
        ("spare", False),
        ("!spare", True),
        ("! region", False),
        ("region=US", True),
        ("region==US", True),
        ("region = EU", False),
        ("region!=EU", True),
        ("spare!=yes", True),
        ("spare=", False),
        ("region in (EU, US)", True),
        ("region in(EU)", False),
        ("region notin (EU)", True),
        ("spare notin (yes,no)", True),
        ("region=US,storage in (SSD,NVMe),!spare", True),
        ("region=US , storage in (HDD)", False),
        ("topology.kubernetes.io/zone=a", True),
        ("inner=x", False),
        ("size=10.0", False),
    ],
)
def test_label_selectors(text: str, matches: bool) -> None:
    assert node_filter(text).matches(US) is matches


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("$..*", True),
        ("$[?@.size > 9]", True),
        ("$[?@.size == 10.0]", True),
        ("$[?@.size == '10']", True),
        ("$[?@.size == '10.0']", False),
        ("$[?@.size > '9']", True),
        ("$[?9 < @.size]", True),
        ("$[?@.region > 5]", False),
        ("$[?@.region != 5]", True),
        ("$[?@.region < 'UT']", True),
        ("$[?!@.spare]", True),
        ("$[?@.spare]", False),
        ("$[?@['topology.kubernetes.io/zone'] == \"a\"]", True),
        ("$[?(@.region == 'EU' || @.storage == 'SSD') && @.size <= 10]", True),
        ("$.[?(@.size == 10)]", True),
    ],
)
def test_json_paths(text: str, matches: bool) -> None:
    assert node_filter(text).matches(US) is matches


def test_attributes_that_are_truth_values_are_compared_as_such() -> None:
    wanted = node_filter("$[?@.gpu == true]")

    assert wanted.matches({"gpu": "true"})
    assert not wanted.matches({"gpu": "false"})
    assert not wanted.matches({"gpu": "yes"})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("region=EU,", "at character 11: the name of an attribute is expected, not the end"),
        ("=EU", "at character 1: the name of an attribute is expected, not '='"),
        ("region EU", "at character 8: =, !=, in (…), notin (…), a comma or the end is expected"),
        ("region in EU", "at character 11: values in parentheses is expected, not 'E'"),
        ("region in (EU", "at character 14: a comma or ) is expected, not the end"),
        ("region=EU storage=SSD", "at character 11: a comma or the end is expected, not 's'"),
        ("region=-", "at character 8: a comma or the end is expected, not '-'"),
        ("$[?(@.region = 'EU')]", "at character 14: unexpected token '='"),
        ("$.[?(@.region = 'EU')]", "at character 15: unexpected token '='"),
        ("$[?@.region == 'EU", "at character 16: "),
        ("$[?match(@.region, 'E.*')]", "at character 4: function 'match' is not defined"),
        ("$.region", "it is not one filter over the attributes of a node: write $[?"),
        ("$", "it is not one filter"),
        ("$[?@.a, ?@.b]", "it is not one filter"),
        ("$[*]", "it is not one filter"),
        ("$[?@.a == 1e400]", "a number in it is too large"),
        (f"$[?{'!' * 1000}@.a]", "it is nested too deeply"),
        ("a" * (FILTER_LENGTH_MAX + 1), "it has 1025 characters: write at most 1024"),
    ],
)
def test_an_error_names_its_place(text: str, error: str) -> None:
    with pytest.raises(FilterError) as raised:
        node_filter(text)

    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    "text",
    [
        "$[?$..[?$..[?@.zz]]]",
        "$[?@..a]",
        "$[?@.a.b == 'x']",
        "$[?@[0] == 'x']",
        "$[?@.*]",
        "$[?@.a == $.b]",
        "$[?@[?@.a]]",
        "$[?@['a','b']]",
        "$[?@]",
    ],
)
def test_a_query_inside_of_a_filter_is_refused(text: str) -> None:
    """Its cost is exponential in its depth: 56 characters took the master six seconds."""
    with pytest.raises(FilterError, match=r"not one attribute|neither an attribute"):
        node_filter(text)


@pytest.mark.timeout(30)
def test_the_longest_filters_are_matched() -> None:
    attributes = {f"name-{at}": "x" * 63 for at in range(200)}
    for part in ("@.a == 'x' && ", "!(@.a) || "):
        text = "$[?" + part * ((1_000 - 10) // len(part)) + "@.b]"
        assert node_filter(text).matches(attributes) == part.startswith("!")
