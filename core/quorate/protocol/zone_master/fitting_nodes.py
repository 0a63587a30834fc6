"""Which nodes fit a zone: they know its mode, offer its storage profile, and its filter matches
their attributes.

A filter that another version stored and this one cannot read changes nothing: the zone's data nodes
match, and no others do.
"""

from quorate.facts.topology import NodeRecord
from quorate.facts.zone import DataNodes, ZoneRecord
from quorate.planning.target.label_selector import FilterError
from quorate.planning.target.node_filter import node_filter


class FittingNodes:
    """The nodes that fit one zone. Each is judged again when it, or the zone's filter, changes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[str, str], str, bool]] = {}
        """Node -> the attributes and the filter that were judged, and the result."""

    def fits(self, node: NodeRecord, zone: ZoneRecord) -> bool:
        """Return whether `node` may be a data node of `zone`."""
        if node.frame_format < zone.frame_format:
            return False
        if zone.storage_profile and zone.storage_profile not in node.storage_profiles:
            return False
        return not zone.filter or self._matches(node, zone.filter, zone.data_nodes)

    def _matches(self, node: NodeRecord, text: str, nodes: DataNodes | None) -> bool:
        known = self._known.get(node.name)
        if known is not None and known[0] is node.attributes and known[1] == text:
            return known[2]
        try:
            matches = node_filter(text).matches(node.attributes)
        except FilterError:
            return nodes is not None and node.name in nodes.nodes
        self._known[node.name] = (node.attributes, text, matches)
        return matches
