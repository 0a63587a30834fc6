"""Writes of a PodDisruptionBudget: their order, and what a failed one leaves open."""

import asyncio
from functools import partial
from typing import Any

import pytest

from quorate.planning.absence.disruption import Disruption
from quorate_loopback.memory_api import MemoryApi
from quorate_operator.kube.api import ApiRefused, ApiUnclear
from quorate_operator.owned import budget
from quorate_operator.owned.apply import Applier
from quorate_operator.owned.budget import Budget
from quorate_owned.facts import managed_cluster

Json = dict[str, Any]
PATH = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/main-agents"
CLUSTER = managed_cluster()


def allowing(count: int, *more: str) -> Disruption:
    return Disruption((), ("agent-1", "agent-2", "agent-3", *more), count)


class SlowApi(MemoryApi):
    """An API server that does what it is asked for when `may_answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.says_nothing = False

    async def apply(self, path: str, body: Json) -> Json:
        await self.may_answer.wait()
        if self.says_nothing:
            raise ApiUnclear("no clear answer")
        return await super().apply(path, body)

    @property
    def stay(self) -> int:
        return int(self.objects[PATH]["spec"]["minAvailable"])


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "AGAIN_S", 0.0)


@pytest.fixture
def api() -> SlowApi:
    return SlowApi()


@pytest.fixture
def written(api: SlowApi) -> Budget:
    return Budget(Applier(api.as_api, "shop"))


async def test_it_must_be_lowered_where_fewer_may_go_or_more_are_protected(
    written: Budget,
) -> None:
    assert not written.must_be_lowered(allowing(0)), "none was written, so there is no promise"
    await written.write(CLUSTER, lambda: allowing(1))

    assert not written.must_be_lowered(allowing(1))
    assert not written.must_be_lowered(allowing(2))
    assert written.must_be_lowered(allowing(0))
    assert written.must_be_lowered(allowing(1, "agent-4"))
    one_away = Disruption((), ("agent-1", "agent-2", "agent-3"), 1, away=("agent-3",))
    assert not written.must_be_lowered(one_away)
    await written.write(CLUSTER, lambda: one_away)
    assert written.must_be_lowered(allowing(1)), "it is back, and counts"


async def test_a_write_without_a_clear_answer_counts_as_not_done(
    api: SlowApi, written: Budget
) -> None:
    await written.write(CLUSTER, lambda: allowing(1))
    api.says_nothing = True
    for count in (0, 1):  # it may also be one that allows more that was done
        with pytest.raises(ApiUnclear):
            await written.write(CLUSTER, partial(allowing, count))
        assert written.must_be_lowered(allowing(0))
        assert written.must_be_lowered(allowing(1))

    api.says_nothing = False
    await written.write(CLUSTER, lambda: allowing(0))
    assert not written.must_be_lowered(allowing(0))


async def test_a_refused_write_leaves_the_budget_as_it_was(api: SlowApi, written: Budget) -> None:
    await written.write(CLUSTER, lambda: allowing(1))
    api.refuse = lambda method, path: 403
    with pytest.raises(ApiRefused):
        await written.write(CLUSTER, lambda: allowing(0))

    assert written.must_be_lowered(allowing(0))
    assert not written.must_be_lowered(allowing(1))


async def test_after_a_failure_there_is_a_pause(
    api: SlowApi, written: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written.write(CLUSTER, lambda: allowing(1))
    monkeypatch.setattr(budget, "AGAIN_S", 3600.0)
    api.says_nothing = True
    with pytest.raises(ApiUnclear):
        await written.write(CLUSTER, lambda: allowing(0))

    assert not written.must_be_lowered(allowing(0))


async def test_the_last_write_is_of_the_last_judgement(api: SlowApi, written: Budget) -> None:
    """Two tasks write, and the first write takes its time."""
    judged = allowing(1)
    api.may_answer.clear()
    writes = [asyncio.create_task(written.write(CLUSTER, lambda: judged)) for _ in range(2)]
    await asyncio.sleep(0)
    assert not written.must_be_lowered(allowing(0)), "a write is under way"
    judged = allowing(0)
    api.may_answer.set()
    await asyncio.gather(*writes)

    assert api.stay == 3
    assert not written.must_be_lowered(allowing(0))


async def test_nothing_is_written_by_who_leads_no_more(api: SlowApi, written: Budget) -> None:
    await written.write(CLUSTER, lambda: None)

    assert api.objects == {}


async def test_a_budget_that_somebody_else_has_made_meanwhile_is_not_lowered(
    api: SlowApi, written: Budget
) -> None:
    await written.write(CLUSTER, lambda: allowing(1))
    theirs = api.put(PATH, {"metadata": {"name": "main-agents"}, "spec": {"minAvailable": 1}})
    with pytest.raises(ApiRefused, match="was not made by Quorate"):
        await written.write(CLUSTER, lambda: allowing(0))

    assert api.objects[PATH] == theirs
