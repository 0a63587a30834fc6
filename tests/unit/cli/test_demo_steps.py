"""What the demo does not let pass, and how it words what it measured."""

import pytest

from quorate_cli.demo.acknowledged_writes import Failure
from quorate_cli.demo.steps import refuse_failures, words_of_parked
from quorate_cli.terminal.problem import Problem


def test_a_step_in_which_no_command_failed_goes_on() -> None:
    refuse_failures([], "agent-4 joined")


def test_a_failed_command_ends_the_demo_and_is_named() -> None:
    failures = [Failure(1.0, "writer-7", "ClusterDownError: CLUSTERDOWN"), Failure(2.0, "x", "y")]

    with pytest.raises(Problem, match=r"2 commands failed while agent-4 joined.*writer-7: Cluster"):
        refuse_failures(failures, "agent-4 joined")


@pytest.mark.parametrize(
    ("count", "longest_s", "words"),
    [
        (0, 0.0, "no command waited"),
        (3, 0.05, "3 commands waited for a hand-over, each at most 50 ms"),
        (
            3,
            float("inf"),
            "3 commands waited for a hand-over, the longest for more",
        ),
    ],
)
def test_waiting_for_a_hand_over_is_worded_as_it_was_measured(
    count: int, longest_s: float, words: str
) -> None:
    assert words in words_of_parked(count, longest_s)
