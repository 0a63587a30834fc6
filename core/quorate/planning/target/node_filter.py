"""A zone's filter of its data nodes: an expression over the attributes of a node.

It is a JSONPath query if it begins with `$`, else a label selector as in Kubernetes.

- JSONPath (RFC 9535, read by python-jsonpath): `$[?(@.region == 'EU' && @.size > 5)]`, one filter
  over the attributes, or `$..*`, all nodes. The form `$.[?(…)]` of Jayway is read as well.
- Label selector: `region=EU,disk in (ssd,nvme),!spare` (label_selector.py).

Attributes are text. Compared with a number, or in order with another number, they count as
numbers. A missing attribute is unequal to every value, and equal to another missing one. Source:
Ignite 3, distribution zones; docs/protocol.md, section 7.
"""

from functools import lru_cache
from typing import NamedTuple

from quorate.planning.target.label_selector import (
    FILTER_LENGTH_MAX,
    FilterError,
    Requirement,
    label_selector,
)

KNOWN_FILTERS = 1024
ALL_NODES = "$..*"


class NodeFilter(NamedTuple):
    """A filter that was read."""

    matches: Requirement
    """Whether a node with these attributes may be a data node."""


@lru_cache(KNOWN_FILTERS)
def node_filter(text: str) -> NodeFilter:
    """Return the filter that `text` writes; empty: all nodes match. Raise FilterError."""
    if len(text) > FILTER_LENGTH_MAX:
        raise FilterError(f"it has {len(text)} characters: write at most {FILTER_LENGTH_MAX}")
    if text == ALL_NODES:
        return NodeFilter(lambda _: True)
    if text.startswith("$"):
        # Imported here: reading JSONPath takes long to import, and few zones have such a filter.
        from quorate.planning.target.json_path import json_path

        return NodeFilter(json_path(text))
    requirements = label_selector(text) if text else []
    return NodeFilter(lambda attributes: all(each(attributes) for each in requirements))
