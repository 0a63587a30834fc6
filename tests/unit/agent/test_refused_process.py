"""A running agent that is refused, or that sees another agent replaced."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode, Refused
from quorate.protocol.messages.master import Members
from quorate.protocol.messages.replication import Append, Batch
from quorate.protocol.settings import DEFAULTS
from quorate_agent.process.probes import Probes
from quorate_agent.process.server import Agent
from quorate_agent.storage.long_values import LONG_BYTES
from quorate_agent.zones.held_appends import BATCH_BYTES
from quorate_lone_agent.process import opened_agent

TERM = 7
ENDS_PART = (RefusalCode.NAME_IN_USE, RefusalCode.COPIED_FOLDER, RefusalCode.OLDER_PROCESS)


class _Link:
    """A link that is lost."""

    dialed = False

    def __init__(self, role: str, master_term: int, word: str = "") -> None:
        self.peer_hello = Hello(
            FORMAT_VERSION, role, "demo", "b", master_term=master_term, master_word=word
        )


def _with_agent(path: Path, story: Callable[[Agent], None]) -> None:
    async def run() -> None:
        with opened_agent(path) as agent:
            agent.core = AgentCore(agent._hello(), agent, DEFAULTS, agent._now())
            _register(agent)
            story(agent)

    asyncio.run(run())


def _register(agent: Agent, *others: NodeRecord, sequence: int = 1) -> None:
    said = agent._hello()
    record = NodeRecord(
        said.node, said.store, said.incarnation, "host", 1, "host", process=said.process
    )
    agent.core.receive_from_master(Members(TERM, (record, *others), sequence), agent._now())
    assert agent.core.registered


def _refuse(agent: Agent, code: RefusalCode, role: str = "master", term: int = TERM) -> None:
    agent.on_down(cast(Any, _Link(role, term)), Refused("another has its place", code))


@pytest.mark.parametrize(
    ("role", "term"), [("tool", 0), ("tool", TERM), ("agent", TERM), ("master", TERM - 1)]
)
def test_a_refusal_that_is_not_the_masters_has_no_effect(
    tmp_path: Path, role: str, term: int
) -> None:
    def story(agent: Agent) -> None:
        for code in RefusalCode:
            _refuse(agent, code, role, term)
        assert not agent.restart
        assert not agent.failure
        assert agent.core.registered

    _with_agent(tmp_path, story)


class _Peer(_Link):
    """A link to a process of agent b, over one store."""

    def __init__(self, incarnation: int, *, dialed: bool) -> None:
        super().__init__("agent", TERM)
        self.peer = None
        self.dialed = dialed
        self.peer_hello = msgspec.structs.replace(
            self.peer_hello, store="b1", incarnation=incarnation
        )
        self.closed: list[tuple[str, str]] = []

    def close(self, reason: str, code: str) -> None:
        self.closed.append((reason, code))


def test_a_process_is_told_and_logged_once_as_refused_after_a_later_one_of_its_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The later one may have been of a copied folder, and have ended: nothing else tells."""

    def story(agent: Agent) -> None:
        dialed, accepted = _Peer(7, dialed=True), _Peer(7, dialed=False)
        for link in (_Peer(8, dialed=False), dialed, accepted, dialed):
            agent.on_up(cast(Any, link), link.peer_hello)
        why = (
            f"agent b, start 7: refused by {agent.core.node}, because start 8 or a later one of its"
            f" store has greeted; if that was of a copy of its folder, restart {agent.core.node}"
        )
        assert [link.closed for link in (dialed, accepted)] == [
            [],
            [(why, RefusalCode.OLDER_PROCESS)],
        ]
        assert [each.message for each in caplog.records if "refused" in each.message] == [why]

    _with_agent(tmp_path, story)


def test_a_folder_is_set_aside_when_the_master_says_that_it_is_an_older_image(
    tmp_path: Path,
) -> None:
    def story(agent: Agent) -> None:
        _refuse(agent, RefusalCode.OLDER_IMAGE)
        assert agent.restart
        assert agent.failure == "another has its place"

    _with_agent(tmp_path, story)


@pytest.mark.parametrize("code", ENDS_PART)
def test_a_process_whose_place_another_has_takes_no_part_until_it_is_taken_in_again(
    tmp_path: Path, code: RefusalCode
) -> None:
    def story(agent: Agent) -> None:
        probes = Probes()
        probes.listens(lambda: agent.core)

        _refuse(agent, code)

        assert not agent.core.registered
        assert not agent.failure
        assert probes.ready() == (False, "another has its place")
        _register(agent)
        assert agent.core.refusal == ""

    _with_agent(tmp_path, story)


@pytest.mark.parametrize("code", [*ENDS_PART, RefusalCode.OLDER_IMAGE])
def test_of_two_masters_of_one_term_only_the_refusal_of_the_obeyed_one_counts(
    tmp_path: Path, code: RefusalCode
) -> None:
    """Two masters have the same term if the metastore was put back to an older state."""

    def story(agent: Agent) -> None:
        obeyed, other = _Link("master", TERM, "obeyed"), _Link("master", TERM, "other")
        assert agent.core.master_up(obeyed.peer_hello)

        agent.on_down(cast(Any, other), Refused("another has its place", code))
        assert agent.core.registered
        assert not agent.restart

        agent.on_down(cast(Any, obeyed), Refused("another has its place", code))
        assert agent.restart or not agent.core.registered

    _with_agent(tmp_path, story)


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_a_replaced_store_said_is_not_taken_for_its_successors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """It is held until long values are written; meanwhile another store is registered."""

    def story(agent: Agent) -> None:
        taken: list[Append] = []
        monkeypatch.setattr(agent.core, "receive", lambda node, message, now: taken.append(message))
        links = [_agents_link(store) for store in ("old", "new")]
        updates = [Append("z", (Batch(0, 1, 1, 0, 0, (bytes(LONG_BYTES + at),)),)) for at in (1, 2)]
        agent._held.turn_ended(["z"])
        for at, link in enumerate(links):
            store = link.peer_hello.store
            _register(agent, NodeRecord("b", store, 1, "host", 1, "host"), sequence=at + 2)
            agent.on_message(link, updates[at])
        assert not taken
        if is_lost:
            agent.on_down(links[0], None)
            assert agent._held.bytes == len(updates[1].batches[0].updates[0]) + BATCH_BYTES

        while agent._held:
            agent._flush()

        assert taken == updates[1:]

    _with_agent(tmp_path, story)


def _agents_link(store: str) -> Any:
    link = _Link("agent", 0)
    link.peer_hello = msgspec.structs.replace(link.peer_hello, store=store, incarnation=1)
    return link


@pytest.mark.parametrize("code", [code for code in RefusalCode if code not in ENDS_PART])
def test_other_refusals_of_the_master_leave_the_agent_registered(
    tmp_path: Path, code: RefusalCode
) -> None:
    def story(agent: Agent) -> None:
        _refuse(agent, code)
        assert agent.core.registered

    _with_agent(tmp_path, story)
