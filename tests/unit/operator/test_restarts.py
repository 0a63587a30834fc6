"""A changed template: pods are replaced one at a time, and a bad image stops after the first."""

from collections.abc import Callable, Collection

from quorate.planning.absence.disruption import Disruption, EvictionBlock, NoEviction
from quorate_operator.owned.restarts import Restart, gone_agents, next_restart
from quorate_owned.facts import Json, pod, stateful_set, verdict, waiting

AGENTS = ("agent-1", "agent-2", "agent-3")
SETS = {agent: stateful_set(agent) for agent in AGENTS}


def pods(**revisions: str) -> dict[str, Json | None]:
    """Ready pods: of the old template, or as said."""
    return {
        agent: pod(f"main-{agent}-0", revisions.get(agent.replace("-", "_"), "old"))
        for agent in AGENTS
    }


def allowing(
    *waits: tuple[str, str], seen: list[list[str]] | None = None
) -> Callable[[Collection[str]], Disruption]:
    """All may restart in the order 2, 3, 1, but those in `waits`."""
    why = dict(waits)

    def after(restarted: Collection[str]) -> Disruption:
        if seen is not None:
            seen.append(sorted(restarted))
        order = ("agent-2", "agent-3", "agent-1")
        return Disruption(tuple(verdict(n, 1, waits=why.get(n, "")) for n in order), AGENTS, 1)

    return after


def unregistered(
    protected: tuple[str, ...], none: NoEviction | None = None
) -> Callable[[Collection[str]], Disruption]:
    """All may restart, and agent-1 is not registered; `protected`: those that rows name."""
    verdicts = tuple(verdict(name) for name in ("agent-2", "agent-3"))
    return lambda restarted: Disruption(verdicts, protected, 1, none)


def test_nothing_is_replaced_while_all_are_of_the_template() -> None:
    present = pods(agent_1="new", agent_2="new", agent_3="new")

    assert next_restart(present, SETS, allowing()) == Restart()


def test_the_first_in_order_goes_first_and_the_core_is_told_who_went_before() -> None:
    seen: list[list[str]] = []

    assert next_restart(pods(), SETS, allowing(seen=seen)).agent == "agent-2"
    assert next_restart(pods(agent_2="new"), SETS, allowing(seen=seen)).agent == "agent-3"
    assert seen == [[], ["agent-2"]]


def test_a_pod_that_must_stay_holds_up_no_other() -> None:
    seen: list[list[str]] = []
    kept = {"agent-2": "its claim is being deleted"}

    assert next_restart(pods(), SETS, allowing(seen=seen), kept).agent == "agent-3"
    others = pods(agent_1="new", agent_3="new")
    assert next_restart(others, SETS, allowing(seen=seen), kept) == Restart("", kept["agent-2"])
    all_new = pods(agent_1="new", agent_2="new", agent_3="new")
    assert next_restart(all_new, SETS, allowing(), kept) == Restart()
    assert seen == [[]]


def test_the_next_waits_for_the_core() -> None:
    waits = ("agent-3", "agent agent-3: waits until agent agent-2 has caught up")
    found = next_restart(pods(agent_2="new"), SETS, allowing(waits))

    assert found == Restart("", waits[1])


def test_a_bad_image_stops_after_the_first() -> None:
    present = pods(agent_2="new")
    present["agent-2"] = pod("main-agent-2-0", "new", **waiting("ImagePullBackOff"))

    found = next_restart(present, SETS, allowing())
    assert found == Restart("", "pod main-agent-2-0 was replaced and is not ready")


def test_the_broken_pod_is_replaced_first_when_the_template_goes_back() -> None:
    present = pods(agent_1="new", agent_3="new")
    present["agent-2"] = pod("main-agent-2-0", "bad", **waiting("ImagePullBackOff"))

    assert next_restart(present, SETS, allowing()).agent == "agent-2"


def test_a_pod_that_runs_and_never_registered_is_replaced_when_the_template_changes() -> None:
    """Its process was refused, hangs, or cannot be reached: the new template may mend that."""
    others = pods(agent_2="new", agent_3="new")

    assert next_restart(others, SETS, unregistered(("agent-2",))) == Restart("agent-1")


def test_an_agent_that_rows_name_is_not_replaced_before_it_registers() -> None:
    others = pods(agent_2="new", agent_3="new")

    assert next_restart(others, SETS, unregistered(AGENTS)) == Restart(
        "",
        "agent agent-1 is not registered, and rows name it: see the log of its pod, and"
        " delete the pod if nothing else helps",
    )


def test_an_agent_that_may_know_lost_rows_is_not_replaced_before_it_registers() -> None:
    rebuilt = NoEviction(EvictionBlock.ROWS_REBUILT, "rows of Zone cart are being rebuilt")
    others = pods(agent_2="new", agent_3="new")

    found = next_restart(others, SETS, unregistered((), rebuilt))

    assert found == Restart(
        "", "agent agent-1 is not registered: rows of Zone cart are being rebuilt"
    )


def test_a_pod_that_never_registered_and_is_being_deleted_is_waited_for() -> None:
    others = pods(agent_2="new", agent_3="new")
    ends = others["agent-1"]
    assert ends is not None
    ends["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    found = next_restart(others, SETS, unregistered(("agent-2",)))

    assert found == Restart("", "pod main-agent-1-0 is being replaced")


def test_a_pod_that_is_being_deleted_is_waited_for() -> None:
    present = pods()
    leaving = present["agent-2"]
    assert leaving is not None
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert next_restart(present, SETS, allowing()).waits_for.endswith("is being replaced")


def test_a_replaced_pod_that_is_being_deleted_again_is_waited_for() -> None:
    """It is ready to the end, and hands its primaries over meanwhile."""
    present = pods(agent_2="new")
    evicted = present["agent-2"]
    assert evicted is not None
    evicted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    found = next_restart(present, SETS, allowing())

    assert found == Restart("", "pod main-agent-2-0 is being replaced")


def test_a_stateful_set_that_nobody_has_looked_at_says_nothing_yet() -> None:
    sets = {**SETS, "agent-3": stateful_set("agent-3", "older", observed=0)}

    assert "not processed yet" in next_restart(pods(), sets, allowing()).waits_for


def test_a_pod_that_is_missing_is_waited_for() -> None:
    present = {**pods(), "agent-1": None}

    assert next_restart(present, SETS, allowing()) == Restart("", "agent agent-1 has no pod yet")
    assert gone_agents(present) == {"agent-1"}
