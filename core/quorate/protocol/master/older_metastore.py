"""A metastore that is older than its agents: they have newer rows, or zones without a record.

Rows and zones are written before agents are told of them, so the metastore should hold whatever a
registered agent has. If it does not, the shell reads it again; what it reads then decides.

- Rows (members/newer_rows.py) are rebuilt, or this master ends.
- Zones: an agent that has data of a zone without a record ends this master, because the record of a
  zone stays until every registered agent has said that its data is gone (zone_deletion.py). Noted
  in its registration, and never a reason to end, are the zones of which it may have data without a
  record all the same:
  - data with which it came, of a zone that was deleted while it was not registered, or registered
    with another store. So once an agent is registered with a store, the first report of all that it
    has is compared with the records. Rows without a record are no record: noting such a zone only
    means that it is no evidence.
  - zones that were deleted since: its folder may be put back to an image from before that.

Source: docs/protocol.md, section 7.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from quorate.protocol.members.cluster import Cluster
from quorate.protocol.members.membership import KnownAgent
from quorate.protocol.metastore import Key, NodeKey, ShardKey, Value, ZoneKey
from quorate.protocol.zone_master.zone_master import ZoneMaster

KEPT_FORMAT = 4
"""Agents that speak a lower format may not tell all zones of which they have data."""

NOTED_MAX = 256
"""If more zones are noted of an agent, the earliest are forgotten of which it tells no data."""


class ToldNewer(NamedTuple):
    """The rows and zones that agents have told and the metastore, as it was read, does not hold.

    `rows`: (zone, partition) -> (version, agent). `zones`: uid -> agent, of zones without a record.
    """

    rows: Mapping[tuple[str, int], tuple[int, str]]
    zones: Mapping[str, str]


class OlderMetastore:
    """The doubts of one master about its metastore.

    `outdated`: why the master must not lead, because agents have what the metastore does not hold;
    empty if there is no reason. `ended`: the zones that were deleted under this master;
    `wishes_changed`: called with an agent whose registration is to be written again.
    """

    def __init__(
        self,
        cluster: Cluster,
        zones: Mapping[str, ZoneMaster],
        ended: Collection[str],
        wishes_changed: Callable[[str], None],
    ) -> None:
        self.outdated = ""
        self._cluster = cluster
        self._zones = zones
        self._ended = ended
        self._wishes_changed = wishes_changed
        self._noted: set[str] = set()
        """The deleted zones that were noted under this master."""
        self._told_zones: dict[str, str] = {}

    @property
    def has_doubts(self) -> bool:
        """Whether anything waits to be compared."""
        return bool(self._cluster.newer_rows.told or self._told_zones)

    def told(self) -> ToldNewer:
        """Return all that waits to be compared with a metastore that is read after this."""
        return ToldNewer(dict(self._cluster.newer_rows.told), dict(self._told_zones))

    def kept_told(self, node: str, agent: KnownAgent) -> bool:
        """Take the zones of which the agent has anything stored, after it has told everything.

        Return whether its registration is to be written again, with those that have no record.
        """
        record, cluster = agent.record, self._cluster
        # Where rows are rebuilt, zones are declared apart from the metastore.
        if cluster.rebuilds or record is None or agent.pending or record.frame_format < KEPT_FORMAT:
            return False
        if record.unrecorded is None:
            # A zone that is being deleted may have the word of another store of this agent already.
            living = {uid for uid, zone in self._zones.items() if not zone.record.deleting}
            unrecorded = agent.kept.difference(living, agent.unrecorded or ())
            agent.unrecorded = (*sorted(unrecorded), *(agent.unrecorded or ()))
            return True
        if not cluster.recovering:
            for uid in sorted(agent.kept.difference(record.unrecorded)):
                if not self._is_known(uid):
                    self._told_zones.setdefault(uid, node)
        return False

    def zones_end(self, uids: Iterable[str]) -> None:
        """Note deleted zones, once each, before their records go; or after, if another deletes one.

        The agents are written again.
        """
        ending = [uid for uid in uids if uid not in self._noted]
        self._noted.update(ending)
        for node, agent in sorted(self._cluster.agents.items()) if ending else ():
            if agent.unrecorded is not None:
                for uid in ending:
                    agent.note_unrecorded(uid, NOTED_MAX)
                self._wishes_changed(node)

    def is_noting(self, writing: Collection[Key]) -> bool:
        """Return whether a note may still be on its way: records of deleted zones wait for it."""
        agents = self._cluster.agents.items()
        return any(a.unrecorded is not None and NodeKey(n) in writing for n, a in agents)

    def _is_known(self, uid: str) -> bool:
        return uid in self._zones or uid in self._ended

    def looked_again(self, told: ToldNewer, stored: Mapping[Key, Value]) -> None:
        """Judge `stored`, which was read after `told`; see Master.looked_again."""
        self._judge_rows(told.rows, stored)
        # A zone that has rows is known, too: its record came before them.
        found = {key.uid for key in stored if isinstance(key, ZoneKey | ShardKey)}
        for uid, node in sorted(told.zones.items()):
            if self._told_zones.get(uid) == node:
                del self._told_zones[uid]
            if uid not in found and not self._is_known(uid):
                self.outdated = self.outdated or (
                    f"agent {node} has data of zone {uid}, and the metastore holds no record of it "
                    "(if the zone was deleted and no other agent has data of it, this agent's "
                    "folder is an older copy: set it aside)"
                )

    def _judge_rows(
        self, told: Mapping[tuple[str, int], tuple[int, str]], stored: Mapping[Key, Value]
    ) -> None:
        older: dict[str, dict[int, int]] = {}
        about: dict[str, str] = {}
        for each in self._cluster.newer_rows.judge(told, stored):
            name = self._zones[each.uid].record.name if each.uid in self._zones else each.uid
            older.setdefault(each.uid, {})[each.partition] = each.version
            about.setdefault(
                each.uid,
                f"agent {each.node} has row {each.version} of partition {each.partition} of zone "
                f"{name}, and the metastore holds {each.stored}",
            )
        for uid, rows_of in older.items():
            if not self._cluster.rebuilds:
                self.outdated = self.outdated or about[uid]
            elif uid in self._zones and not self._zones[uid].record.deleting:
                self._zones[uid].withdraw(rows_of, about[uid])
