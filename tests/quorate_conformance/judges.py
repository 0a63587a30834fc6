"""Which judge a case has, or why it has none yet."""

from collections.abc import Callable

from quorate_conformance import (
    counters,
    data_nodes,
    partition_states,
    plans,
    reductions,
    repairs,
)
from quorate_conformance.case_files import Case

Judge = Callable[[Case], None]

JUDGES: dict[str, Callable[[Case], Judge | str]] = {
    "planner_cases": plans.judge_of,
    "counter_cases": counters.judge_of,
    "reduce_append_cases": reductions.judge_of,
    "zone_cases": data_nodes.judge_of,
    "ha_scenarios": partition_states.judge_of,
    "repair_cases": repairs.judge_of,
}
NOT_BUILT = {
    "resp_client_probe": "measurements of clients; the agent's tests run the clients themselves",
}


def judge_of(case: Case) -> Judge | str:
    """The function that asserts what Quorate does in this case, or why there is none."""
    if case.kind in JUDGES:
        return JUDGES[case.kind](case)
    return NOT_BUILT.get(case.kind, f"there is no judge for the kind {case.kind!r}")
