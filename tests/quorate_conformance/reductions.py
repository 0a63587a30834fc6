"""What a row owes to a case about nodes that come back without memory.

The reference holds switch.reduce and switch.append beside the assignments and has to clear them;
here both follow from the row and the registry, so nothing can be left behind.  What is compared is
the order of the configurations: `stable` is the row's voters, `pending` those after the migration
under way.
"""

from collections.abc import Callable
from typing import Any

from quorate.facts.partition_row import quorum
from quorate.planning.next_migration import next_migration
from quorate_conformance.case_files import Case

BATCHED = "voters change one at a time: two lost stores take two reductions"
EMPTIED = "a zone whose copies are all gone is LOST, it does not start afresh by itself"

GOES_ROUND = {
    "stale_reduce_seed_variant": "a key left behind starts a round that nobody needs",
    "stale_append_in_published_code": "a key left behind starts a round that nobody needs",
}


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "volatile_start_guard":
        return EMPTIED if not case.facts["has_data"] and not case.facts["unknown"] else _guard
    if case.section != "cases":
        return f"there is no judge for the section {case.section!r}"
    if case.name == "two_nodes_restart_batched":
        return BATCHED
    return GOES_ROUND.get(case.name, _trace)


class Row:
    """One partition: who votes, which votes are of stores that are gone, what is under way."""

    def __init__(self, nodes: list[str]) -> None:
        self.voters = list(nodes)
        self.wanted = list(nodes)
        self.dead: set[str] = set()
        self.restarted: set[str] = set()  # without memory while a copy is being made on them
        self.pending: list[str] | None = None

    def plan(self) -> None:
        """Start what is due, if nothing is under way."""
        if self.pending is not None:
            return
        owners = tuple(None if node in self.dead else node for node in self.voters)
        step = next_migration(
            owners, tuple(self.voters), self.wanted, self.dead, self.dead, len(self.wanted)
        )
        if step is not None and set(step.voters) != set(self.voters):
            self.pending = list(step.voters)

    def applied(self) -> None:
        """What is under way is committed."""
        assert self.pending is not None
        arrived = set(self.pending) - set(self.voters)
        self.voters, self.pending = self.pending, None
        # A store that went while its copy was made: the voter that arrived is dead already.
        self.dead = {n for n in self.dead if n in self.voters and n not in arrived} | (
            arrived & self.restarted
        )
        self.restarted.clear()


def _trace(case: Case) -> None:
    row = Row(case.facts["initial_calculated"])
    for step in case.facts["steps"]:
        event, keys = step["event"], step.get("keys")
        if event == "calculated assignments become":
            row.wanted = step["nodes"]
            continue
        if event.startswith("volatile restart"):
            node = step["node"]
            (row.dead if node in row.voters else row.restarted).add(node)
        elif event.startswith("data nodes changed"):
            row.wanted = step["nodes"]
        elif event == "raft configuration applied":
            assert row.pending is not None
            assert set(row.pending) == set(step["nodes"])
            row.applied()
        elif event == "ordinary rebalance starts":
            row.wanted = step["nodes"]
            if set(step["nodes"]) == set(row.voters):
                row.pending = list(step["nodes"])  # the reference rebalances without a change
        elif not event.startswith("configuration"):
            raise AssertionError(f"unknown event {event!r}")
        row.plan()
        if keys is not None:
            _is_as_told(row, keys)


def _is_as_told(row: Row, keys: dict[str, Any]) -> None:
    pending = keys["pending"]
    assert set(row.voters) == set(keys["stable"])
    assert (row.pending is None) == (pending is None)
    assert pending is None or set(row.pending or ()) == set(pending)


def _guard(case: Case) -> None:
    """Who may go on without the one that came back empty.  Where the reference asks for a majority
    always, two copies may lose one here: every majority of two had the other."""
    facts = case.facts
    present, dead = len(facts["has_data"]), len(facts["empty"])
    goes_on = present > 0 and present >= quorum(facts["peers"], dead)

    assert goes_on == (facts["decision"].startswith("reduce") or facts["peers"] == 2)
