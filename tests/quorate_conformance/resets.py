"""Judges a story of a zone in HIGH_AVAILABILITY: its steps, on the real master and real copies.

Ours departs in these: the time is the zone's own (the reference has one for the cluster, 0 s), all
copies vote (it has learners above five), and returned copies are set aside instead of wiped.
"""

from collections.abc import Callable
from typing import Any

from quorate.facts.zone import NEVER_MS
from quorate.protocol.recovery import RecoveryAction
from quorate_conformance import manual_resets
from quorate_conformance.case_files import Case
from quorate_conformance.reductions import PROSE
from quorate_sim.scenario import Scenario

_LEARNERS = "every copy votes: there are no learners to take over"
_PROFILES = "filters and profiles are judged by zone_cases; a reset does not look at them"
NOT_JUDGED = {
    "negative_timeout_rejected": "the schema refuses it before there is a zone (test_crds)",
    "returned_node_is_wiped": "a returned copy is filled anew, or set aside (test_resets)",
    "ordinary_rebalance_in_ha_zone": (
        "a voter on disk that is away keeps its vote until another node has its copy"
    ),
    "reset_then_filter_moves_zone": _PROFILES,
    "reset_respects_storage_profile": _PROFILES,
    "all_voters_lost_learners_take_over": _LEARNERS,
    "change_storage_profile_before_reset": _PROFILES,
    "reset_tie_breaks_by_name": "the survivor is chosen by reports (test_resets)",
    "custom_quorum_blocks_reset": "a quorum is always a majority",
}
STEPS = {
    *("write", "stop", "start", "automatic_reset", "expect"),
    *("manual_reset", "set_reset_timeout"),
}
"""Words of a step.  An automatic reset is due by time: that nothing comes of it is expected."""

EXPECTED = {
    *("stable", "reset_requests", "values_present_on", "partitions_empty_on"),
    *("errors", "within_s"),  # a write is awaited, and so is everything else
    *("partitions", "manual", "timer_ran", "ongoing_operations", "pending"),  # of their requests
    *("chain", "phase2"),
    *("meaning", "phase1"),  # words; a state that lasts for no time
    "planned",
}
SETTLED_MS = 4_000
"""Longer than the master takes to notice a loss and to reset."""


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "reset_rule":
        return PROSE
    by_person = manual_resets.judge_of(case)
    return NOT_JUDGED.get(case.name, _judge) if by_person is None else by_person


def _judge(case: Case) -> None:
    zone = case.facts["zone"]
    is_high = zone["mode"] == "HIGH_AVAILABILITY"
    seconds = int(zone["reset_timeout"].split()[0])
    teller = _Teller(len(zone["nodes"]), zone["replicas"], seconds * 1000 if is_high else NEVER_MS)
    for step in case.facts["steps"]:
        teller.take(step)


class _Teller:
    """Does the steps of one story. Its nodes n0, n1, … are the agents a1, a2, …"""

    def __init__(self, agents: int, replicas: int, reset_ms: int) -> None:
        self._story = Scenario(agents, replicas, reset_ms=reset_ms)
        self._written: dict[bytes, bytes] = {}
        self._stopped: set[str] = set()

    def take(self, step: dict[str, Any]) -> None:
        """Do one step, and check what it expects."""
        unknown = {*step} - STEPS | {*step.get("expect", {})} - EXPECTED
        assert not unknown, f"nobody knows how to judge {unknown}"
        story = self._story
        if "write" in step or not self._written:
            self._write()
        for node in step.get("stop", ()):
            story.crash(_agent(node))
            self._stopped.add(node)
        for node in step.get("start", ()):
            name = _agent(node)
            self._stopped.discard(node)
            story.start(name) if name in story.cluster.agents else story.add(name)
        if "set_reset_timeout" in step:
            story.set_reset_ms(step["set_reset_timeout"] * 1000)
        if "manual_reset" in step:
            lost = [_agent(node) for node in self._stopped]
            story.wait(lambda: not any(map(story.is_online, lost)), "the loss is seen")
            story.run(SETTLED_MS)
            assert story.recover(RecoveryAction.RESET).refusals == ()
        self._expect(step.get("expect", {}))

    def _write(self) -> None:
        key = b"k%d" % len(self._written)
        self._story.written(self._story.wait_for_primary(), key, b"v" + key)
        self._written[key] = b"v" + key

    def _expect(self, expected: dict[str, Any]) -> None:
        story = self._story
        if "stable" in expected:
            wanted = {_agent(node) for node in expected["stable"]}
            story.wait(
                lambda: {*story.row.voter_nodes} == wanted,
                f"stable is {expected['stable']}",
                60_000,
            )
        else:
            story.run(SETTLED_MS)
        if "phase2" in expected:
            self._expect(expected["phase2"])
        if "chain" in expected:
            links = story.row.reset.links if story.row.reset is not None else ()
            chain = [{v.node for v in voters} for voters in [link.voters for link in links]]
            chain.append({*story.row.voter_nodes})
            assert chain == [{_agent(node) for node in link} for link in expected["chain"]]
        if "reset_requests" in expected:
            assert (story.row.reset is not None) == bool(expected["reset_requests"])
        if "partitions_empty_on" in expected:
            assert not story.primary  # copies are kept, but none of them serves
        for node in expected.get("values_present_on", ()):
            self._expect_values(_agent(node))

    def _expect_values(self, agent: str) -> None:
        copy = self._story.copy(agent)
        self._story.wait(lambda: copy.adopted, f"{agent} has adopted")
        for key, value in self._written.items():
            row = copy.get(key)
            assert row is not None
            assert row.value == value


def _agent(node: str) -> str:
    return f"a{int(node.removeprefix('n')) + 1}"
