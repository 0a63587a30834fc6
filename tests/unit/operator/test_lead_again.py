"""The pauses until a cluster is led again: they grow, are forgotten, and end with the cluster."""

import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared import lead_again
from quorate_operator.declared.lead_again import LeadAgain


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(lead_again, "OVERTAKEN_PAUSE_S", 0.01)
    monkeypatch.setattr(lead_again, "FAILED_PAUSE_S", 0.01)
    return []


@pytest.mark.parametrize(("forgotten_s", "counts"), [(600.0, [1, 2, 3]), (0.0, [1, 1, 1])])
async def test_pauses_grow_and_an_end_long_after_the_last_one_is_the_first(
    led: list[str], monkeypatch: pytest.MonkeyPatch, forgotten_s: float, counts: list[int]
) -> None:
    monkeypatch.setattr(lead_again, "FORGOTTEN_S", forgotten_s)
    pauses = LeadAgain(led.append)
    for times, count in enumerate(counts, 1):
        pauses.overtaken("main")
        pauses.failed("other", "a defect")

        assert pauses.counts("main") == (count, 0)
        assert pauses.counts("other") == (0, count)
        await until(lambda times=times: len(led) == 2 * times, "both are led again")


async def test_a_cluster_that_is_gone_is_not_led_again_and_its_pauses_are_forgotten(
    led: list[str],
) -> None:
    pauses = LeadAgain(led.append)
    pauses.overtaken("main")
    pauses.failed("main", "a defect")
    pauses.forget("main")
    pauses.overtaken("other")
    await until(lambda: led == ["other"], "the other one is led again")

    assert pauses.counts("main") == (0, 0)
    pauses.overtaken("main")
    assert pauses.counts("main") == (1, 0)
    await until(lambda: led == ["other", "main"], "led again once")
    pauses.overtaken("main")
    pauses.close()
    pauses.forget("main")


async def test_the_next_cluster_of_that_name_is_not_ended_by_the_pause_of_the_one_before(
    declared: Namespace,
) -> None:
    declared.start()
    declared.zone("books")
    await declared.until_available("books")
    pauses = declared.controller._pauses
    pauses.failed("main", "a defect")
    declared.controller.cluster_gone("main", "uid-of-main")
    declared.declare("StorageCluster", "main", uid="another", addresses=declared.addresses())

    await until(
        lambda: (
            "main" in declared.controller._led
            and declared.controller._led["main"].cluster.metadata.uid == "another"
        ),
        "the next one is led",
    )
    assert pauses.counts("main") == (0, 0)
