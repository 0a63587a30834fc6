"""The intent for one partition: its present owners, those to come, and those after them.

Ignite 3 keeps this as keys in its metastore (IGNITE-16668 "in-memory raft group reconfiguration",
IEP-131 "high availability zones"). Here a row keeps its voters and its active migration only; the
rest follows from the row, its target, and the stores that are gone for good. So no key can be left
behind, and the newest intent is always the one in force. docs/protocol.md, section 6, "Intent".

    stable     the voters of the row
    pending    the voters after its active migration; no other begins before that one has ended
    planned    the target, unless pending, reduce and append lead there
    reduce     voters whose store is gone for good
    append     nodes that get a copy in the free place of a reduced voter, or of a new replica

`plan_step` takes them in the order append, reduce, planned.
"""

from collections.abc import Collection, Sequence

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.planning.target.distribute_partitions import placed_voters

Nodes = tuple[str, ...]


class Intent(msgspec.Struct, frozen=True):
    """The intent for one partition. Nodes are in the order of their replica indexes.

    `pending`, `planned`: None if there is nothing of the kind.
    """

    partition: int
    stable: Nodes
    pending: Nodes | None = None
    planned: Nodes | None = None
    reduce: Nodes = ()
    append: Nodes = ()

    @property
    def has_more(self) -> bool:
        """Return whether something is to be done when the active migration has ended."""
        after = self.stable if self.pending is None else self.pending
        is_short = any(node not in after for node in self.append)
        return self.planned is not None or is_short or any(node in after for node in self.reduce)

    @property
    def sentence(self) -> str:
        """The whole intent for people, on one line."""
        words = f"partition {self.partition}: {', '.join(self.stable)}"
        if self.pending is not None:
            words += f" > {', '.join(self.pending)} (pending)"
        if self.planned is not None:
            words += f" > {', '.join(self.planned)} (planned)"
        if self.reduce:
            words += f"; to be reduced: {', '.join(self.reduce)}"
        if self.append:
            words += f"; to be re-added: {', '.join(self.append)}"
        return words


def intent_of(row: PartitionRow, wanted: Sequence[str], dead: Collection[str]) -> Intent:
    """Return the intent for the row.

    - `wanted`: the nodes of its target by replica index.
    - `dead`: its voters whose store is gone for good. Their nodes may be online, with another one.
    """
    stable = _placed(row.replicas, row.voter_nodes)
    after, owners = stable, row.replicas
    if row.active is not None:
        owners = row.active.replicas
        after = _placed(owners, [voter.node for voter in row.active.voters])
    reduce = tuple(node for node in stable if node in dead)
    newcomers = [node for node in wanted if node not in stable]
    leavers = [node for node in stable if node not in wanted]
    # Newcomers replace leavers first, lowest replica index first, as in `plan_migrations`.
    append = tuple(newcomers[len(leavers) :])
    is_planned = any(node not in (*wanted, *reduce) for node in after) or any(
        node not in (*after, *reduce, *append) for node in wanted
    )
    if not is_planned and set(after) == set(wanted):
        is_planned = any(
            node is not None and wanted.index(node) != at for at, node in enumerate(owners)
        )
    return Intent(
        row.partition,
        stable,
        after if row.active is not None else None,
        tuple(wanted) if is_planned else None,
        reduce,
        append,
    )


def _placed(replicas: Sequence[str | None], voters: Sequence[str]) -> Nodes:
    return tuple(node for node in placed_voters(replicas, voters) if node is not None)
