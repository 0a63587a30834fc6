"""Admission of agents that greet: what registrations, rows and modes of zones say of them.

The rules that need nothing but a registration are in membership.py.  Source: docs/protocol.md,
section 7.
"""

from collections.abc import Mapping

from quorate.facts.partition_row import majority, quorum
from quorate.facts.topology import NodeRecord, Voter
from quorate.facts.zone import RESETS_FORMAT
from quorate.protocol.members.membership import KnownAgent, older_image, record_of, refusal
from quorate.protocol.messages.handshake import Hello, RefusalCode, Refused
from quorate.protocol.zone_master.zone_master import ZoneMaster


class Admission:
    """Judges the greetings of agents."""

    def __init__(self, agents: Mapping[str, KnownAgent], zones: Mapping[str, ZoneMaster]) -> None:
        self._agents = agents
        self._zones = zones

    def refusal(self, hello: Hello) -> Refused | None:
        """Return why the agent that greets must not take part; None if it may."""
        agent = self._agents.get(hello.node)
        refused = refusal(agent, hello)
        if refused is None and (agent is None or agent.newest is None):
            refused = self._refusal_by_rows(hello)
        refused = refused or self._refusal_by_modes(hello)
        is_another = agent is not None and agent.record and agent.record.store != hello.store
        if refused is None and is_another and self._is_done_without(record_of(hello)):
            return Refused(
                f"node {hello.node}: store {hello.store} counts as gone for good, and other agents "
                "serve without its votes; it is accepted once these are given up: start the agents "
                "that have the other copies",
                RefusalCode.NAME_IN_USE,
            )
        return refused

    def _refusal_by_rows(self, hello: Hello) -> Refused | None:
        """Refuse an unregistered node if a row names a later incarnation of its store.

        Its registration was lost then, and what greets is an older image of its folder.
        """
        for zone in self._zones.values():
            if not zone.record.persistent:
                continue  # there, each incarnation is another store
            for part in zone.parts.values():
                for holder in (part.row.primary, part.row.destination):
                    if holder is None or (holder.node, holder.store) != (hello.node, hello.store):
                        continue
                    if holder.incarnation > hello.incarnation:
                        return older_image(hello, holder.incarnation)
        return None

    def _refusal_by_modes(self, hello: Hello) -> Refused | None:
        """Refuse an agent that is too old for a zone of which it has copies.

        It would not see a reset, and delete copies that one left.
        """
        if hello.format_version >= RESETS_FORMAT:
            return None
        for zone in self._zones.values():
            parts, needs = zone.parts, zone.record.frame_format
            if parts.leave(hello.node) or (needs and parts.names(hello.node)):
                return Refused(
                    f"node {hello.node}: it has copies of zone {zone.record.name} that a reset left"
                    f" or may leave ({zone.record.mode}), which needs frame format {RESETS_FORMAT};"
                    f" it speaks {hello.format_version}: start a version of Quorate that speaks"
                    f" {RESETS_FORMAT}",
                    RefusalCode.FORMAT,
                )
        return None

    def _is_done_without(self, record: NodeRecord) -> bool:
        """Return whether some quorum is smaller because this store is gone for good.

        If the store were taken back before its votes are given up, it could help to make up a
        quorum that has nothing of what was answered meanwhile.
        """
        for zone in self._zones.values():
            nodes = zone.nodes
            voter = Voter(record.name, record.zone_store(zone.record.persistent))
            for part in zone.parts.values():
                for voters in part.row.voter_sets:
                    count, dead = len(voters), sum(nodes.is_dead(each) for each in voters)
                    if voter not in voters or quorum(count, dead) == majority(count):
                        continue
                    if nodes.is_dead(voter):
                        return True
        return False
