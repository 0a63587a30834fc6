"""The embedded operator's objects: changes follow one another, and none is of another object."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from quorate_operator.embedded.objects import ObjectStore
from quorate_operator.metastores.sqlite_file import EmbeddedStore

T = TypeVar("T")
LOST = "12345678-aaaa-bbbb-cccc-1234567890ab"


def zone(name: str, replicas: int = 1) -> dict[str, Any]:
    spec = {"clusterRef": {"name": "main"}, "partitions": 1, "replicas": replicas}
    head = {"apiVersion": "quorate.io/v1alpha1", "kind": "Zone"}
    return {**head, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    store = EmbeddedStore.open(tmp_path)
    yield store
    await store.close()


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_name_that_was_declared_meanwhile_is_not_replaced(
    store: EmbeddedStore, is_deleted: bool
) -> None:
    objects = ObjectStore(store)
    putting = asyncio.create_task(objects.put("zones", "books", zone("books", 3)))
    await asyncio.sleep(0)
    assert objects.get("zones", "books") is None, "it is being stored"

    async def delete() -> None:
        if is_deleted:
            await objects.mark_deleted("zones", "books")

    wanted = "books", f"books-{LOST[:8]}"
    _, made = await asyncio.gather(delete(), objects.restore("zones", wanted, zone("books"), LOST))
    declared, _ = await putting

    assert made is not None
    assert (made["metadata"]["name"], made["metadata"]["uid"]) == (wanted[1], LOST)
    present = objects.get("zones", "books")
    assert present is not None
    assert present["spec"]["replicas"] == 3
    assert present["metadata"]["uid"] == declared["metadata"]["uid"]
    assert ("deletionTimestamp" in present["metadata"]) == is_deleted


async def test_what_is_there_is_not_declared_again(store: EmbeddedStore) -> None:
    objects = ObjectStore(store)
    first = await objects.restore("zones", ["books"], zone("books"), LOST)
    other = "7" + LOST[1:]

    assert first is not None
    assert await objects.restore("zones", ["books", "more"], zone("books", 2), LOST) is None
    assert await objects.restore("zones", ["books"], zone("books", 2), other) is None
    assert objects.list("zones") == [first]


async def test_a_status_is_not_kept_for_a_zone_that_was_created_anew(store: EmbeddedStore) -> None:
    objects = ObjectStore(store)
    old, _ = await objects.put("zones", "books", zone("books"))
    await objects.remove("zones", "books")
    new, _ = await objects.put("zones", "books", zone("books"))
    uid = new["metadata"]["uid"]

    await objects.keep_status("zones", "books", old["metadata"]["uid"], {"lastDay": 1})
    assert objects.list("zones") == [new]
    await objects.keep_status("zones", "books", uid, {"lastDay": 2})
    assert objects.list("zones") == [{**new, "status": {"lastDay": 2}}]


async def test_a_change_whose_caller_has_gone_is_in_memory_as_in_the_file(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = ObjectStore(store)
    run = EmbeddedStore.run
    stored, go_on = asyncio.Event(), asyncio.Event()

    async def slow(of: EmbeddedStore, job: Callable[[sqlite3.Connection], T]) -> T:
        done = await run(of, job)
        stored.set()
        await go_on.wait()
        return done

    monkeypatch.setattr(EmbeddedStore, "run", slow)
    putting = asyncio.create_task(objects.put("zones", "books", zone("books")))
    await stored.wait()
    putting.cancel()
    next_one = asyncio.create_task(objects.put("zones", "books", zone("books", 3)))
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    made, is_new = await next_one

    assert not is_new
    assert made["metadata"]["generation"] == 2
