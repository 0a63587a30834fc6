"""Agents are greeted anew when a master asks for it: members, and others that are dialed once."""

from collections.abc import AsyncIterator

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.messages.handshake import Hello, RefusalCode
from quorate_agent.process.peers import Peers
from quorate_link import Link, LinkSettings
from quorate_loopback.sides import HOST, Side, close_opened
from quorate_loopback.waiting import until


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await close_opened()


class Dialing(Side):
    """An agent and its links to others."""

    def __init__(self, name: str, settings: LinkSettings | None = None) -> None:
        super().__init__(name)
        self.peers = Peers(name, self.open(settings))

    def on_up(self, link: Link, hello: Hello) -> None:
        super().on_up(link, hello)
        self.peers.up(link)


def _members(port: int, *names: str) -> dict[str, NodeRecord]:
    return {name: NodeRecord(name, f"store-{name}", 1, HOST, port, HOST) for name in names}


async def test_an_agent_that_is_no_member_is_dialed_for_one_greeting() -> None:
    away, agent = Side("away"), Dialing("b")
    port = await away.listen()

    agent.peers.greet(HOST, port)
    agent.peers.greet(HOST, port)  # the first is under way
    await until(lambda: away.count("down", "bye"), "end of the greeting")

    assert away.heard == [("up", "b"), ("down", "bye")]
    assert agent.peers.link("away") is None
    agent.peers.greet(HOST, port)
    await until(lambda: away.count("up", "b") == 2, "another greeting")


async def test_a_member_is_greeted_over_a_new_link_that_stays() -> None:
    away, agent = Side("away", store="store-away", incarnation=1), Dialing("b")
    port = await away.listen()
    agent.peers.dial(_members(port, "away", "b"))
    await until(lambda: agent.peers.link("away"), "a link")
    first = agent.peers.link("away")

    agent.peers.greet(HOST, port)
    await until(lambda: away.count("up", "b") == 2, "another greeting")
    await until(lambda: agent.peers.link("away") not in (None, first), "another link")

    assert away.count("down", "bye") == 0


async def test_an_address_where_nobody_listens_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorate_agent.process.peers.GREETING_S", 0.1)
    away, agent = Side("away"), Dialing("b")
    port = await away.listen()
    await away.endpoint.close()

    agent.peers.greet(HOST, port)
    refused = agent.endpoint.counters
    await until(lambda: not agent.endpoint._peers, "its end")

    assert refused.dials_refused > 0


async def test_who_is_a_member_no_more_is_dialed_no_more() -> None:
    away, agent = Side("away", store="store-away", incarnation=1), Dialing("b")
    port = await away.listen()
    agent.peers.dial(_members(port, "away", "b"))
    await until(lambda: agent.peers.link("away"), "a link")

    agent.peers.dial(_members(port, "b"))
    await until(lambda: away.count("down", "bye"), "its end")

    assert agent.peers.link("away") is None


@pytest.mark.parametrize(("store", "incarnation"), [("old", 2), ("store-away", 1)])
async def test_an_earlier_process_that_still_answers_is_dialed_again_after_a_pause(
    store: str, incarnation: int, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = Side("away", store=store, incarnation=incarnation)
    agent = Dialing("b", LinkSettings(redial_first_ms=60_000, redial_max_ms=60_000))
    port = await earlier.listen()
    later = {"away": NodeRecord("away", "store-away", 2, HOST, port, HOST)}

    agent.peers.dial(later)
    await until(lambda: earlier.count("down", RefusalCode.NODE), "its refusal")

    assert not agent.peers.is_up("away")
    assert "registered is store store-away, incarnation 2" in caplog.text
    agent.peers.dial({"away": NodeRecord("away", store, incarnation, HOST, port, HOST)})
    await until(lambda: agent.peers.is_up("away"), "a link to the process that is registered now")
    assert earlier.count("up", "b") == 2, "it was dialed once at each registration"


async def test_a_process_over_a_copied_folder_is_refused_until_it_is_the_registered_one() -> None:
    """The original counted as many starts, and its name leads to the copy."""
    copy = Side("away", store="store-away", incarnation=1)
    agent = Dialing("b", LinkSettings(redial_first_ms=60_000, redial_max_ms=60_000))
    port = await copy.listen()
    record = NodeRecord("away", "store-away", 1, HOST, port, HOST, process="of the original")

    agent.peers.dial({"away": record})
    await until(lambda: copy.count("down", RefusalCode.NODE), "its refusal")

    assert not agent.peers.is_up("away")
    agent.peers.dial(_members(port, "away"))
    await until(lambda: agent.peers.is_up("away"), "a link to the process that is registered now")


async def test_an_earlier_process_that_answers_all_the_time_is_named_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    earlier = Side("away", store="old")
    agent = Dialing("b", LinkSettings(redial_first_ms=1, redial_max_ms=1))
    port = await earlier.listen()

    agent.peers.dial(_members(port, "away"))
    await until(lambda: earlier.count("down", RefusalCode.NODE) > 2, "several refusals")

    assert sum("registered is" in message for message in caplog.messages) == 1
