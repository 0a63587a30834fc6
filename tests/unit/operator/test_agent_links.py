"""Which links are a node's, which have gone silent, and what agents are told of."""

from types import SimpleNamespace
from typing import Any, cast

from quorate.protocol.master.node_registry import STALL_MS
from quorate.protocol.messages.events import ToldEvent
from quorate.protocol.messages.handshake import RefusalCode, Refused
from quorate.protocol.messages.master import EventsTold, MasterPing
from quorate.protocol.messages.message import Message
from quorate.wire.frames import decode_message, next_frame
from quorate_link import Link
from quorate_operator.mastership.agent_links import TELL_MS, AgentLinks
from quorate_operator.mastership.agent_refusals import AgentRefusals

SILENCE_MAX_MS = 1000
PING, NEXT = MasterPing(1, 1), MasterPing(1, 2)


class ScriptedLink:
    """Keeps what is done to it."""

    def __init__(self) -> None:
        self.data: str | None = None
        self.peer = SimpleNamespace(address=("127.0.0.1", 7100))
        self.sent: list[Message] = []
        self.closed: tuple[str, int] | None = None
        self.aborted = ""

    def send_frame(self, kind: type, frame: bytes) -> None:
        body = next_frame(bytearray(frame), len(frame))
        assert body is not None
        self.sent.append(decode_message(body))

    def close(self, reason: str, code: int) -> None:
        self.closed = (reason, code)

    def abort(self, why: str) -> None:
        self.aborted = why


def links_to(*nodes: str) -> tuple[AgentLinks, dict[str, Any]]:
    links = AgentLinks(AgentRefusals("main"), SILENCE_MAX_MS)
    made = {node: ScriptedLink() for node in nodes}
    links.abort_silent(0)
    for node, link in made.items():
        links.take(cast(Link, link), node, 0)
    return links, made


def let_pass(links: AgentLinks, from_ms: int, to_ms: int) -> None:
    """Ticks, as a process makes them that runs."""
    for now_ms in range(from_ms, to_ms + 1, 100):
        links.abort_silent(now_ms)


def test_a_link_over_which_nothing_comes_is_ended_once() -> None:
    links, made = links_to("agent-1", "agent-2")
    let_pass(links, 0, 600)
    assert links.heard(made["agent-2"], 600) == "agent-2"

    let_pass(links, 600, 1000)
    assert made["agent-1"].aborted == ""
    let_pass(links, 1100, 1100)

    assert made["agent-1"].aborted == "silent for 1100 ms"
    assert made["agent-2"].aborted == ""
    made["agent-1"].aborted = ""
    let_pass(links, 1200, 1500)
    assert made["agent-1"].aborted == ""


def test_a_process_that_did_not_run_takes_no_agent_for_silent() -> None:
    links, made = links_to("agent-1")

    links.abort_silent(STALL_MS + SILENCE_MAX_MS + 1)

    assert made["agent-1"].aborted == ""


def test_a_link_that_was_replaced_is_its_nodes_no_more() -> None:
    links, made = links_to("agent-1")
    old, new = made["agent-1"], cast(Any, ScriptedLink())
    links.take(new, "agent-1", 0)

    assert links.heard(old, 100) is None
    assert links.ended(old) is None
    assert links.ended(cast(Any, ScriptedLink())) is None

    links.send([("agent-1", PING), ("agent-9", PING), ("agent-1", NEXT)])
    assert (old.sent, new.sent) == ([], [PING, NEXT])
    assert links.ended(new) == "agent-1"
    assert links.by_node == {}


def test_a_node_that_the_master_refuses_is_told_why_and_sent_nothing_more() -> None:
    links, made = links_to("agent-1", "agent-2")
    refused = Refused("agent-1: not this one", RefusalCode.NAME)

    links.send([("agent-1", PING), ("agent-1", refused), ("agent-1", PING), ("agent-2", PING)])

    assert made["agent-1"].sent == [PING]
    assert made["agent-1"].closed == ("agent-1: not this one", RefusalCode.NAME)
    assert made["agent-1"].data is None
    assert (made["agent-2"].sent, [*links.by_node]) == ([PING], ["agent-2"])


def test_news_are_gathered_for_all_agents() -> None:
    links, made = links_to("agent-1", "agent-2")
    first, second, third = (
        ToldEvent(at, "2026-01-01T00:00:00Z", "Normal", "Planted", "x") for at in (1, 2, 3)
    )
    links.tell_news(1, 0)
    links.add_news([first])
    links.tell_news(1, 0)
    links.add_news([second])
    links.tell_news(1, TELL_MS - 1)
    links.add_news([third])
    links.tell_news(1, TELL_MS)
    links.tell_news(1, 2 * TELL_MS)

    for link in made.values():
        assert link.sent == [EventsTold(1, (first,)), EventsTold(1, (second, third))]
