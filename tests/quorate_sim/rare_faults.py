"""Events that few seeds have: refills, agents that refuse zones, a metastore that is lost, many
masterships that reach no agent, zones whose filter is changed, decisions of a person.

Only one seed in seven may have them, one in thirteen changed filters, two in nineteen decisions,
and what they are comes from random streams of their own: the seeds beside them, those that are kept
above all, draw what they drew before there were any.
"""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import msgspec

from quorate.protocol.agent.masterships import RECOVERY_TERMS, TERMS_BELIEVED
from quorate.protocol.messages.tools import Refill, Refilling
from quorate.protocol.recovery import Recovery, RecoveryAction
from quorate_sim.node_filters import FILTERS
from quorate_sim.placements import is_high
from quorate_sim.world import MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate_sim.agent_process import AgentProcess
    from quorate_sim.cluster import Cluster
    from quorate_sim.master_process import MasterProcess

ASK_MS = 200
"""So often somebody who wants a refill asks for it."""
DECIDE_AGAIN_MS = 1_000
DECISIONS = (*[RecoveryAction.RESTART] * 3, RecoveryAction.CANCEL, RecoveryAction.RESET)
UNHEARD = TERMS_BELIEVED - 30
"""So many masterships go by at once: who obeys the one before them believes the next few."""


class RareFaults(msgspec.Struct, frozen=True):
    """Rates per simulated second; `losses`: how often the metastore is lost; `unheard`: masterships
    that reach no agent; `outages`: whether agents go down with the metastore."""

    refills: float = 0.0
    refusals: float = 0.0
    losses: int = 0
    unheard: float = 0.0
    outages: bool = False
    filters: float = 0.0
    decisions: float = 0.0


NONE = RareFaults()


def draw_rare_faults(seed: int) -> RareFaults:
    """What of them this seed has: mostly nothing."""
    filters = Random(f"{seed} filters").choice((0.3, 1.0)) if seed % 13 == 10 else 0.0
    decided = seed % 19 in (3, 7)
    decisions = Random(f"{seed} decisions").choice((2.0, 10.0)) if decided else 0.0
    if seed % 7 != 3:
        return RareFaults(filters=filters, decisions=decisions)
    r = Random(f"{seed} rare faults")
    return RareFaults(
        filters=filters,
        decisions=decisions,
        refills=r.choice((0.0, 0.3, 2.0)),
        refusals=r.choice((0.0, 0.1, 0.4)),
        losses=0 if is_high(seed) else r.choice((0, 1, 1, 2)),
        unheard=r.choice((0.0, 0.0, 0.3, 1.0)),
        outages=r.choice((False, True)),
    )


class RareEvents:
    """Lets them happen in one run."""

    def __init__(
        self,
        cluster: Cluster,
        is_over: Callable[[], bool],
        crash: Callable[[AgentProcess], None],
        one_more_master: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._is_over = is_over
        self._crash = crash
        self._one_more_master = one_more_master
        self._losses = cluster.swarm.rare.losses
        self._refills = 0

    def step(self, often: Callable[[float], bool]) -> None:
        """`often`: whether something that happens at this rate happens now."""
        rare = self._cluster.swarm.rare
        if often(rare.refills):
            self._refill()
        if often(rare.refusals):
            self._refuse()
        if self._losses and often(0.3) and self._cluster.may_lose_metastore():
            self._losses -= 1
            self._lose_metastore()
        if often(rare.unheard):
            self._count_unheard()
        if often(rare.filters):
            self._change_filter()
        if often(rare.decisions):
            self._decide()

    def end(self) -> None:
        """Everybody has room again, and persons see what is left of what they decided."""
        for disk in self._cluster.disks.values():
            disk.refuses.clear()
        if self._cluster.swarm.rare.decisions:
            self._decide_again()

    # --- a filter --------------------------------------------------------------------------------

    def _change_filter(self) -> None:
        r, cluster = self._world.random, self._cluster
        uid, text = r.choice(list(cluster.zones)), r.choice(list(FILTERS))
        if any(
            cluster.committed_row(uid, partition) is None
            for partition in range(cluster.zones[uid].partitions)
        ):
            return  # it might never be placed
        record = cluster.zones[uid] = msgspec.structs.replace(cluster.zones[uid], filter=text)
        cluster.coverage.struck("filter", [])
        self._world.trace("user", f"gives {uid} the filter {text!r}")
        process = cluster.newest_master()
        if process is not None and process.master is not None:
            process.run(lambda: process.declare(record))

    # --- a person's decision ---------------------------------------------------------------------

    def _decide(self) -> None:
        """A person restarts or erases a copy, cancels a migration, or accepts a lost majority."""
        r, cluster = self._world.random, self._cluster
        uid = r.choice(list(cluster.zones))
        partition = r.randrange(cluster.zones[uid].partitions)
        action = r.choice(DECISIONS)
        row, process = cluster.committed_row(uid, partition), cluster.newest_master()
        core = process.master if process is not None and process.alive else None
        if row is None or process is None or core is None or uid not in core.zones:
            return
        node = r.choice(row.voter_nodes) if action is RecoveryAction.RESTART else ""
        erase = bool(node) and r.random() < 0.5
        asked = Recovery(action, {partition: row.version}, node, erase, dry_run=False)
        process.run(lambda: self._have_done(process, uid, asked))

    def _decide_again(self) -> None:
        """A copy to which a partition was narrowed was gone by then, as no master had heard yet:
        what a reset left may be there."""
        cluster, resets = self._cluster, self._cluster.checks.resets
        process = cluster.newest_master()
        for uid, partition in sorted(resets.decided):
            row = cluster.committed_row(uid, partition)
            if row is None or row.reset is None or not cluster.are_gone(row.voters):
                continue
            asked = Recovery(RecoveryAction.RESET, {partition: row.version}, dry_run=False)
            if process is not None:
                process.run(partial(self._have_done, process, uid, asked))
        self._world.after(DECIDE_AGAIN_MS * MS, self._decide_again)

    def _have_done(self, process: MasterProcess, uid: str, asked: Recovery) -> None:
        """Have the master do what a person decided, if it leads the zone."""
        core, resets, node = process.master, self._cluster.checks.resets, asked.node
        if not process.alive or core is None or uid not in core.zones:
            return
        (partition,) = asked.versions
        before = (uid, partition) in resets.decided
        if asked.action is RecoveryAction.RESET:
            resets.decided.add((uid, partition))
        answer = core.recover(uid, asked, process.now())
        if answer.refusals and not before:
            resets.decided.discard((uid, partition))
        if not answer.refusals:
            self._cluster.coverage.struck(f"person: {asked.action.lower()}", [node] if node else [])
        told = answer.refusals or [each.sentence for each in answer.partitions]
        done = f"{asked.action} {node} {'erase' if asked.erase else ''}"
        self._world.trace("user", f"{done}: {told[0]}")

    # --- a refill --------------------------------------------------------------------------------

    def _refill(self) -> None:
        """A person has an owner's rows replaced by those of others, and may lose patience."""
        r = self._world.random
        uid = r.choice(list(self._cluster.zones))
        partition = r.randrange(self._cluster.zones[uid].partitions)
        row = self._cluster.committed_row(uid, partition)
        if row is None or len(row.owners) < 2:
            return
        name = r.choice(row.owners)
        others = [node for node in row.owners if node != name]
        suppliers = tuple(r.sample(others, r.randint(1, len(others))))
        self._refills += 1
        question = Refill(uid, partition, f"refill {self._refills}", suppliers)
        self._cluster.coverage.struck("refill", [name])
        self._world.trace(name, f"its copy of {uid} {partition} is refilled from {suppliers}")
        self._ask(name, question, r.choice((1, 20, 100)))

    def _ask(self, name: str, question: Refill, times: int) -> None:
        if self._is_over() or not times:
            return
        agent = self._cluster.agent_at(name)
        zone = agent.core.zones.get(question.zone_name) if agent is not None else None
        answers: list[Refilling] = []
        if agent is not None and zone is not None:
            refills = zone.refills
            agent.run(lambda: answers.append(refills.ask(question)))
            if answers and answers[0].done:
                self._cluster.checks.refilled(agent, question)
            if answers and (answers[0].done or answers[0].problem):
                said = answers[0].problem or "done"
                self._world.trace(agent.label, f"{question.token}: {said}")
                return
        self._world.after(ASK_MS * MS, lambda: self._ask(name, question, times - 1))

    # --- a zone that is refused ------------------------------------------------------------------

    def _refuse(self) -> None:
        """An agent starts anew and lacks what some of its zones need: descriptors, say."""
        living = self._cluster.living()
        if living:
            self._restart_lacking(self._world.random.choice(living))

    def _restart_lacking(self, agent: AgentProcess) -> None:
        r = self._world.random
        self._crash(agent)
        if agent.alive:
            return  # its memory must not be lost now
        disk = self._cluster.disks[agent.name]
        zones = list(self._cluster.zones)
        disk.refuses.update(r.sample(zones, r.randint(1, len(zones))))
        self._cluster.coverage.struck("refusal", [agent.name])
        self._world.trace(agent.name, f"will refuse {sorted(disk.refuses)}")
        self._world.after(r.choice((300, 3_000, 8_000)) * MS, disk.refuses.clear)

    # --- a metastore that is lost ----------------------------------------------------------------

    def _lose_metastore(self) -> None:
        """All that it held is gone, writes on their way included; soon somebody has it rebuilt from
        what the agents have, as `quorate-operator recover` does."""
        cluster = self._cluster
        self._end_masters()
        if cluster.swarm.rare.outages:
            self._go_down()
        if cluster.may_lose_metastore():  # still so: memory may have gone with the agents
            cluster.coverage.struck("metastore lost", [])
            self._world.trace("metastore", "is lost")
            # Nobody begins before an agent answers; who is away may know a few masterships more.
            heard = [agent.disk for agent in cluster.living()] or list(cluster.disks.values())
            cluster.metastore.lose(max(disk.master_term for disk in heard) + RECOVERY_TERMS)
        self._world.after(self._world.random.randrange(50, 3000) * MS, self._one_more_master)

    def _go_down(self) -> None:
        """Agents were beside the metastore: they return one by one, some without their zones."""
        r = self._world.random
        living = self._cluster.living()
        for agent in r.sample(living, r.randint(0, len(living))):
            if r.random() < 0.5:
                self._restart_lacking(agent)
            else:
                self._crash(agent)

    # --- masterships that reach no agent ---------------------------------------------------------

    def _count_unheard(self) -> None:
        """The operator starts again and again and ends before it greets anybody.  An agent that is
        away, and hears of the next one only, does not believe its number by itself."""
        cluster = self._cluster
        heard = [agent.disk.master_term for agent in cluster.living()]
        known = max(heard, default=0)
        if not known or cluster.metastore.master_term > known:
            return  # of those that went by before, no agent has heard yet
        if heard.count(known) < 2:
            return  # the disk of the only one that could vouch for the next number may be lost
        cluster.coverage.struck("masterships unheard", [])
        self._world.trace("metastore", f"counts {UNHEARD} masterships that reach no agent")
        self._end_masters()
        cluster.metastore.acquire_master_term(known + UNHEARD)
        self._world.after(self._world.random.randrange(50, 1000) * MS, self._one_more_master)

    def _end_masters(self) -> None:
        for master in self._cluster.masters:
            if master.alive:
                master.die()
