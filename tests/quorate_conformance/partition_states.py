"""What a partition with so many healthy copies is, in the simulator: real copies, a real master.

Ours departs in one thing: while too few copies are there nothing is written, so those that come
back lack nothing, and the partition is served with them.  The reference counts copies that catch up
as absent.
"""

from collections.abc import Callable

from quorate_conformance import chains, resets
from quorate_conformance.case_files import Case
from quorate_conformance.data_nodes import QUORUM
from quorate_sim.scenario import Scenario

COPIES = (
    "states of one copy have other names: HEALTHY is OWNING; INITIALIZING, INSTALLING_SNAPSHOT and"
    " CATCHING_UP are MOVING; UNAVAILABLE and BROKEN are an agent that left or refuses the zone"
)
FORMULA = "the number of partitions is given by the user: none is computed"
LEARNERS = "every copy votes: there are no learners, and the quorum is a majority"

SETTLED_MS = 4_000
"""Longer than a loss takes to be noticed and answered."""


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "states":
        if case.name == "local":
            return COPIES
        return _state if case.facts["quorum"] == case.facts["replicas"] // 2 + 1 else QUORUM
    reasons = {
        "default_partition_formula": FORMULA,
        "quorum_table": LEARNERS,
    }
    return reasons.get(case.section) or chains.judge_of(case) or resets.judge_of(case)


def _state(case: Case) -> None:
    facts = case.facts
    story = Scenario(agents=facts["replicas"], replicas=facts["replicas"])
    away = story.row.owners[: facts["replicas"] - facts["healthy"]]
    for name in away:
        story.crash(name)
    story.run(SETTLED_MS)

    assert _state_of(story) == facts["expect"]
    if not facts.get("catching_up"):
        return
    for name in away:
        story.start(name)
    story.wait(lambda: _state_of(story) == "AVAILABLE", "those that are back lack nothing")


def _state_of(story: Scenario) -> str:
    """The one state in which the master counts the partition."""
    master = next(each.master for each in story.cluster.masters if each.alive and each.master)
    (zone,) = master.status().zones
    counts = {
        "AVAILABLE": zone.available,
        "DEGRADED": zone.degraded,
        "READ_ONLY": zone.read_only,
        "UNAVAILABLE": zone.unavailable - zone.read_only - zone.lost,
        "LOST": zone.lost,
    }
    return next(name for name, count in counts.items() if count == 1)
