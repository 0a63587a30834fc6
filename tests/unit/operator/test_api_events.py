"""The embedded operator's API tells its Events, also to those that wait for them."""

import asyncio

import pytest

from quorate_loopback.embedded_api import CLUSTER, ROOT, ZONE, Client, Json, Server
from quorate_operator.mastership.event_log import EventLog


async def led(client: Client) -> Json:
    """The first page of events of a cluster that is led."""
    await client.ask("PUT", f"{ROOT}/storageclusters/main", CLUSTER)
    async with asyncio.timeout(10):
        while True:
            status, page = await client.ask("GET", "/events")
            if status == 200:
                return page
            assert status == 503
            await asyncio.sleep(0.02)


async def test_who_asks_for_events_gets_the_state_and_then_each_event_once(client: Client) -> None:
    page = await led(client)
    assert page["events"] == []
    waiting = asyncio.create_task(client.ask("GET", f"/events?after={page['next']}&wait=20"))
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    _, told = await asyncio.wait_for(waiting, 10)
    assert [(e["reason"], e["zone"]) for e in told["events"]] == [("ZoneCreated", "sessions")]
    assert (await client.ask("GET", f"/events?after={told['next']}"))[1]["events"] == []
    _, now = await client.ask("GET", "/events")
    assert [(e["reason"], e["zone"], e["state"]["phase"]) for e in now["events"]] == [
        ("State", "sessions", "Pending")
    ]
    assert now["next"] == told["next"]


async def test_who_missed_events_gets_those_remembered_and_then_the_state(client: Client) -> None:
    await led(client)
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    async with asyncio.timeout(10):
        reasons: list[str] = []
        while reasons != ["ZoneCreated", "State"]:
            _, page = await client.ask("GET", "/events?after=0&wait=1")
            reasons = [event["reason"] for event in page["events"]]


async def test_events_of_one_zone_leave_out_those_of_others(client: Client) -> None:
    page = await led(client)
    for name in ("sessions", "carts"):
        await client.ask("PUT", f"{ROOT}/zones/{name}", {**ZONE, "metadata": {"name": name}})
    path = f"/events?after={page['next']}&wait=20&zone=carts"
    _, told = await client.ask("GET", path)
    assert [event["zone"] for event in told["events"]] == ["carts"]


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("after=soon", 422, "after is 'soon'"),
        ("after=0&wait=3600", 422, "from 0 to 60"),
        ("zone=nowhere", 404, "Zone nowhere does not exist"),
        ("cluster=other", 404, "StorageCluster other does not exist"),
    ],
)
async def test_a_wrong_question_for_events_is_refused_in_words(
    client: Client, query: str, status: int, words: str
) -> None:
    await led(client)
    found, answer = await client.ask("GET", f"/events?{query}")
    assert found == status
    assert words in answer["message"]


async def test_an_operator_that_ends_lets_no_listener_wait(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await led(client)
    real, waits = EventLog.wait, asyncio.Event()

    async def noted(log: EventLog, sequence: int, seconds: float) -> None:
        waits.set()
        await real(log, sequence, seconds)

    monkeypatch.setattr(EventLog, "wait", noted)
    waiting = asyncio.create_task(client.ask("GET", f"/events?after={page['next']}&wait=60"))
    async with asyncio.timeout(10):
        await waits.wait()
        assert not waiting.done()
        await server.stop()
        assert (await waiting)[1]["events"] == []
    await server.start()


async def test_events_are_counted_by_zone_and_reason(client: Client) -> None:
    page = await led(client)
    await client.ask("PUT", f"{ROOT}/zones/sessions", ZONE)
    await client.ask("GET", f"/events?after={page['next']}&wait=20")
    _, text = await client.text("/metrics")
    assert 'quorate_events_total{namespace="",reason="ZoneCreated",zone="sessions"} 1.0' in text
