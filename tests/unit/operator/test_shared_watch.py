"""Many clusters follow what is stored of them by one watch per kind and place."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from quorate_loopback.waiting import until
from quorate_operator.kube import shared_watch
from quorate_operator.kube.api import GROUP_PATH, KubeApi, path_of
from quorate_operator.kube.scope import Scope
from quorate_operator.kube.shared_watch import Change, SharedWatches
from quorate_operator.kube.watch import Shown

KINDS = dict.fromkeys(("storagenodes", "partitiontables"), GROUP_PATH)
TABLES = path_of("", "partitiontables")
LABEL = "quorate.io/cluster"


def an_object(namespace: str, cluster: str, name: str, revision: int) -> dict[str, Any]:
    labels = {LABEL: cluster} if cluster else {}
    version = str(revision)
    return {"namespace": namespace, "name": name, "resourceVersion": version, "labels": labels}


class Watching:
    """The watches that are under way, played by the test, and what followers were told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *namespaces: str) -> None:
        self.begun: list[str] = []
        self.problem: dict[str, Callable[[str], None]] = {}
        self.shown: dict[str, asyncio.Queue[tuple[list[Shown], bool]]] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.failures: list[str] = []
        monkeypatch.setattr(shared_watch, "watch_objects", self._watch)
        scope = Scope(namespaces, "default")
        api = cast(KubeApi, None)
        self.shared = SharedWatches(api, scope, KINDS, LABEL, self.failures.append)

    async def _watch(
        self, api: KubeApi, path: str, selector: str, on_problem: Callable[[str], None]
    ) -> AsyncGenerator[tuple[list[Shown], bool]]:
        assert selector == LABEL
        self.begun.append(path)
        self.problem[path] = on_problem
        queue = self.shown.setdefault(path, asyncio.Queue())
        while True:
            yield await queue.get()

    def show(self, *objects: dict[str, Any], path: str = TABLES, is_all: bool = False) -> None:
        queue = self.shown.setdefault(path, asyncio.Queue())
        queue.put_nowait(([Shown(each) for each in objects], is_all))

    def remove(self, gone: dict[str, Any]) -> None:
        self.shown[TABLES].put_nowait(([Shown(gone, True)], False))

    async def follow(self, namespace: str, cluster: str) -> list[Change]:
        told: list[Change] = []

        async def follow() -> None:
            changes = self.shared.follow(namespace, cluster)
            while True:
                told.append(await anext(changes))

        self.tasks.append(asyncio.create_task(follow()))
        await self.turn()
        return told

    async def turn(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.shared.close()
        assert self.failures == []


async def test_each_cluster_is_told_of_its_own_objects_by_one_watch_per_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Watching(monkeypatch)
    one = await watching.follow("one", "main")
    two = await watching.follow("two", "main")
    other = await watching.follow("one", "other")
    assert sorted(watching.begun) == [path_of("", "partitiontables"), path_of("", "storagenodes")]

    watching.show(an_object("one", "main", "a", 1), an_object("two", "main", "a", 2), is_all=True)
    watching.show(an_object("two", "main", "b", 3))
    watching.remove(an_object("one", "main", "a", 4))
    await until(lambda: len(one) == len(two) == 2, "told")

    assert one == [("partitiontables", {"a": "1"}, True), ("partitiontables", {"a": None}, False)]
    assert two == [("partitiontables", {"a": "2"}, True), ("partitiontables", {"b": "3"}, False)]
    assert other == [("partitiontables", {}, True)]
    await watching.close()


async def test_who_comes_later_is_shown_all_that_there_is_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Watching(monkeypatch)
    await watching.follow("one", "main")
    watching.show(an_object("two", "late", "a", 1), an_object("two", "late", "b", 2), is_all=True)
    watching.remove(an_object("two", "late", "a", 3))
    watching.show(an_object("two", "late", "b", 4))
    await watching.turn()

    late = await watching.follow("two", "late")

    assert late == [("partitiontables", {"b": "4"}, True)]
    assert len(watching.begun) == len(KINDS)
    await watching.close()


async def test_after_a_new_list_what_is_not_in_it_is_gone_for_every_follower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Watching(monkeypatch)
    one = await watching.follow("one", "main")
    other = await watching.follow("one", "other")
    watching.show(an_object("one", "main", "a", 1), is_all=True)
    watching.show(an_object("one", "other", "b", 2), is_all=True)
    await until(lambda: len(one) == len(other) == 2, "told")

    assert one[1] == ("partitiontables", {}, True)
    assert other[1] == ("partitiontables", {"b": "2"}, True)
    late = await watching.follow("one", "main")
    assert late == [("partitiontables", {}, True)]
    await watching.close()


async def test_an_object_whose_label_somebody_changes_is_gone_for_the_one_and_new_for_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Watching(monkeypatch)
    main, other = await watching.follow("one", "main"), await watching.follow("one", "other")
    watching.show(an_object("one", "main", "a", 1), is_all=True)
    watching.show(an_object("one", "other", "a", 2))
    await until(lambda: len(main) == len(other) == 2, "told")

    assert main[1] == ("partitiontables", {"a": None}, False)
    assert other[1] == ("partitiontables", {"a": "2"}, False)
    await watching.close()


async def test_a_list_of_namespaces_has_a_watch_per_kind_in_each_that_has_a_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Watching(monkeypatch, "one", "two", "without")
    for cluster in ("main", "other"):
        for namespace in ("one", "two"):
            await watching.follow(namespace, cluster)

    expected = [path_of(place, plural) for place in ("one", "two") for plural in KINDS]
    assert sorted(watching.begun) == sorted(expected)
    await watching.close()


async def test_a_kind_of_another_group_is_watched_at_its_path_and_problems_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watching = Watching(monkeypatch, "one")
    watching.shared._kinds = {"pods": "/api/v1", **KINDS}
    await watching.follow("one", "main")
    path = "/api/v1/namespaces/one/pods"
    assert path in watching.begun

    watching.problem[path](f"{path} is not watched: 403")
    assert watching.shared.problems() == [f"namespace one: {path} is not watched: 403"]

    watching.problem[path]("")
    assert watching.shared.problems() == []
    await watching.close()
