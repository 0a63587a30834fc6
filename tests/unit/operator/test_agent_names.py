"""Which agents a managed cluster has: more, fewer, none, and again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.planning.absence.choose_leavers import AgentLoad, ClusterLoad
from quorate_operator.owned.agent_names import Agents, address, choose_agents

NOBODY = ClusterLoad()


def about(*agents: tuple[str, int, bool]) -> ClusterLoad:
    """Agents with so many GiB, and whether they are drained."""
    return ClusterLoad(
        tuple(AgentLoad(n, draining=d, bytes=b << 30, copies=1) for n, b, d in agents), 1
    )


def test_a_new_cluster_begins_with_the_lowest_numbers() -> None:
    assert choose_agents(3, (), NOBODY) == Agents(("agent-1", "agent-2", "agent-3"), (), True)


def test_more_agents_take_the_numbers_that_are_free() -> None:
    chosen = choose_agents(4, {"agent-2", "agent-10"}, NOBODY)

    assert chosen.staying == ("agent-1", "agent-2", "agent-3", "agent-10")


def test_those_leave_that_cost_least_and_of_equals_the_last() -> None:
    known = {"agent-1", "agent-2", "agent-3", "agent-4"}
    copies = about(("agent-1", 9, False), ("agent-2", 3, False), ("agent-3", 9, False))

    assert choose_agents(3, known, copies).leaving == ("agent-4",), "it never took part"
    assert choose_agents(2, known, copies).leaving == ("agent-4", "agent-2")
    assert choose_agents(1, known, copies).leaving == ("agent-4", "agent-2", "agent-3")


def test_bytes_count_and_not_copies() -> None:
    few_large = AgentLoad("agent-1", bytes=900 << 30, copies=2)
    held = ClusterLoad(
        (
            few_large,
            AgentLoad("agent-2", bytes=30 << 30, copies=40),
            AgentLoad("agent-3", bytes=130 << 30),
        )
    )

    assert choose_agents(2, {"agent-1", "agent-2", "agent-3"}, held).leaving == ("agent-2",)


def test_of_those_that_hold_nearly_the_same_the_last_one_leaves() -> None:
    held = ClusterLoad(
        tuple(AgentLoad(f"agent-{n}", bytes=(9 << 30) + n, copies=9) for n in (1, 2, 3))
    )

    assert choose_agents(1, {"agent-1", "agent-2", "agent-3"}, held).leaving == (
        "agent-3",
        "agent-2",
    )


def test_a_failure_domain_that_a_copy_needs_keeps_an_agent() -> None:
    held = ClusterLoad(
        (
            AgentLoad("agent-1", failure_domain="north", bytes=40),
            AgentLoad("agent-2", failure_domain="north", bytes=40),
            AgentLoad("agent-3", failure_domain="south", bytes=1),
        ),
        copies=2,
    )

    assert choose_agents(2, {"agent-1", "agent-2", "agent-3"}, held).leaving == ("agent-2",)


def test_who_is_on_its_way_out_stays_on_it() -> None:
    """As a drain empties it others may become cheaper, or dearer."""
    copies = about(("agent-1", 9, True), ("agent-2", 3, False), ("agent-3", 3, False))

    assert choose_agents(2, {"agent-1", "agent-2", "agent-3"}, copies).leaving == ("agent-1",)


def test_at_zero_nobody_leaves_and_nobody_runs() -> None:
    known = {"agent-1", "agent-3"}
    stopped = choose_agents(0, known, NOBODY)

    assert stopped == Agents(("agent-1", "agent-3"), (), run=False)
    assert choose_agents(2, known, NOBODY) == Agents(("agent-1", "agent-3"), (), run=True)


def test_names_of_others_are_not_touched() -> None:
    chosen = choose_agents(1, {"elsewhere", "agent-0", "agent-01", "agent-x", "agent-2"}, NOBODY)

    assert chosen == Agents(("agent-2",), (), True)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.integers(0, 8), st.sets(st.integers(1, 12)), st.sets(st.integers(1, 12)))
def test_there_are_as_many_as_declared_and_each_known_one_is_accounted_for(
    replicas: int, known: set[int], draining: set[int]
) -> None:
    names = {f"agent-{number}" for number in known}
    copies = about(*((name, 1, int(name[6:]) in draining) for name in sorted(names)))
    chosen = choose_agents(replicas, names, copies)

    assert len(chosen.staying) == replicas or not chosen.run
    assert not {*chosen.staying} & {*chosen.leaving}
    assert names <= {*chosen.staying, *chosen.leaving}
    assert chosen == choose_agents(replicas, {*chosen.staying, *chosen.leaving}, copies)


def test_the_operator_dials_a_name_that_outlives_the_pod() -> None:
    assert address("main", "shop", "agent-2") == "main-agent-2-0.main-agents.shop.svc:7100"
