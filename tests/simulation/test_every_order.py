"""Every order of delivery, loss and crash in small clusters: what was acknowledged stays.

Each test prints how many states it has seen and how deep; `make soak` explores them without bound.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from quorate.protocol.copies.primary import Primary
from quorate_exhaustive.explorations import EXPLORATIONS, HIGH, Exploration
from quorate_exhaustive.explorer import Broken, Budget, Explorer
from quorate_sim import planted_copies, planted_primaries
from quorate_sim.changed import changed

pytestmark = pytest.mark.simulation

COMPLETE = {
    "two writes, a message lost, one twice",
    "a backup crashes and returns",
    "a backup moves",
    "the primary moves",
}


@pytest.mark.parametrize("name", EXPLORATIONS)
def test_what_was_acknowledged_is_found_in_every_state(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = EXPLORATIONS[name].run()
    with capsys.disabled():
        how = "all" if found.complete else "the first"
        print(f"\n{name}: {how} {found.states:,} states, depth {found.depth}")

    assert found.complete == (name in COMPLETE)
    assert found.states > 1000


@pytest.mark.parametrize(
    ("rule_off", "name"),
    [
        (planted_primaries.acknowledge_before_majority, "two writes, a message lost, one twice"),
        (planted_copies.answer_above_a_hole, "two writes, a message lost, one twice"),
        (planted_copies.source_deletes_early, "a backup moves"),
        (planted_primaries.no_joint_mode, "a backup moves"),
        (planted_primaries.caught_up_before_joint, "a backup moves"),
    ],
)
def test_a_rule_switched_off_is_missed(
    rule_off: Callable[[], AbstractContextManager[None]], name: str
) -> None:
    with rule_off(), pytest.raises(Broken, match="I-"):
        EXPLORATIONS[name].run()


def test_an_acknowledgement_that_does_not_wait_for_every_owner_is_missed() -> None:
    with (
        changed(Primary, "_by_all_owners", lambda role: role.copy.durable_lwm),
        pytest.raises(Broken, match="I-5"),
    ):
        Explorer(("a", "b", "c"), 3, Budget(writes=1), HIGH).explore()


def test_the_way_to_a_broken_state_is_told() -> None:
    with planted_primaries.acknowledge_before_majority(), pytest.raises(Broken) as broken:
        Explorer(("a", "b", "c"), 3, Budget(writes=1)).explore()

    assert "a takes a write" in str(broken.value)


def test_without_faults_every_order_ends_with_the_copy_moved_or_waiting_for_time() -> None:
    found = Exploration(("a", "b", "c"), 2, Budget(writes=1, drains=("b",)), 10_000).run()

    assert found.complete
    assert any(outcome.startswith("a/c, 1 told, 1 serve") for outcome in found.outcomes)
