"""`quorate aside`: what it asks of agents, and what it shows."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from quorate.facts.lineage import Lineage
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import (
    AskAside,
    AskCopies,
    AskValues,
    Copies,
    CopyState,
    RowsAside,
    SetAside,
    Value,
    Values,
)
from quorate.protocol.status import NodeStatus, ZoneStatus
from quorate_cli.commands import aside
from quorate_cli.commands.every import app
from quorate_cli.copies import rows_aside
from quorate_cli.copies.agent_question import Asked, Unreached
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.terminal.problem import Problem

SERVER = ["--server", "127.0.0.1:9"]
AGENTS = [Asked("127.0.0.1", port, "main", f"agent-{port}", Path("secret")) for port in (1, 2, 3)]
ROWS = RowsAside(3, 5, 0, 86_400_000, 17, 14, 204, 4, 1200)
SENTENCE = (
    "zone books, partition 3, agent-2: 4 rows (1.2 KB) up to counter 204 of term 14, set aside"
    " 1970-01-01 00:00:00 UTC after the reset of term 17, dropped 1970-01-02 00:00:00 UTC"
)
COMMON = Value(b"common", 1, 2, 0, "string", (b"same",), 4)
LONG = Value(b"long", 7, 14, 0, "string", None, 5_000_000)
LEFT = [
    COMMON,
    Value(b"deleted", 5, 14, 0, "none", (), 0),
    Value(b"greeting", 6, 14, 0, "hash", (b"f", b"\xff\n"), 9),
    Value(b"long", 7, 14, 0, "string", None, 5_000_000),
    Value(b"only here", 8, 14, 0, "string", (b"x" * 200,), 200),
    Value(b"written twice", 9, 14, 0, "string", (b"equal",), 5),
]
PRESENT = [
    Value(b"another", 3, 19, 0, "string", (b"new",), 3),
    COMMON,
    Value(b"deleted", 4, 19, 0, "string", (b"there",), 5),
    Value(b"greeting", 5, 19, 0, "string", (b"hi",), 2),
    LONG,
    Value(b"written twice", 6, 19, 0, "string", (b"equal",), 5),
]


NODE = NodeStatus("", "", 1, True, "Online", "127.0.0.1:1", "", 0, 0)
QUIET = ZoneStatus(
    uid="quiet",
    name="quiet",
    phase="",
    sentence="",
    partitions=4,
    available=4,
    degraded=0,
    unavailable=0,
    migrations_running=0,
    migrations_queued=0,
    migrations_done=0,
    migrations_failed=0,
    bytes_moved=0,
    full_copies=0,
    ports={},
    data_nodes=(),
    spread_violations=(),
)
BOOKS = msgspec.structs.replace(QUIET, uid="books", name="books", aside={"agent-2": (1, 1200)})


class Agents:
    """Answers questions: agent-2 has set something aside, agent-1 has the primary."""

    def __init__(self) -> None:
        self.silent = ""
        self.has_aside = True
        self.long_present = b"o" * 200
        self.asked: list[str] = []
        nodes = tuple(
            msgspec.structs.replace(NODE, name=agent.node, online=agent.node != "agent-3")
            for agent in AGENTS
        )
        self.state = ClusterState("main", "", "", 1, nodes, (BOOKS, QUIET))

    def ask(self, agent: Asked, question: Message, kind: type) -> Message:
        """Answer as `ask_agent` does."""
        if agent.node == self.silent:
            raise Unreached(f"{agent.where} cannot be reached: refused")
        self.asked.append(getattr(question, "zone_name", ""))
        if isinstance(question, AskAside) and not self.has_aside:
            return SetAside("books", agent.node, ())
        match question:
            case AskAside(after=-1) if agent.node == "agent-2":
                return SetAside("books", agent.node, (), 2)
            case AskAside(after=2) if agent.node == "agent-2":
                return SetAside("books", agent.node, (ROWS,))
            case AskAside():
                return SetAside("books", agent.node, ())
            case AskCopies():
                index, term = {"agent-1": (0, 19), "agent-2": (0, 17)}.get(agent.node, (1, 19))
                lineage = Lineage(())
                state = CopyState(3, index, 9, term, True, 9, 9, (), lineage, 1, 1, 1)
                return Copies("books", agent.node, (state,))
            case AskValues(generation=5):
                assert agent.node == "agent-2"
                return self._values(question, LEFT, b"x" * 200)
            case AskValues(generation=None):
                assert agent.node == "agent-1"
                return self._values(question, PRESENT, self.long_present)
            case _:
                raise AssertionError(question)

    @staticmethod
    def _values(question: AskValues, values: list[Value], whole: bytes) -> Values:
        if question.key is not None:
            found = [each for each in values if each.key == question.key]
            if question.key == b"long":
                found = [Value(b"long", 7, 14, 0, "string", (whole,), 5_000_000)]
            return Values("books", 3, None, tuple(found))
        later = [each for each in values if question.after is None or each.key > question.after]
        return Values("books", 3, later[1].key if len(later) > 1 else None, tuple(later[:2]))


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> Agents:
    """Three agents in place of real ones."""
    made = Agents()
    monkeypatch.setattr(rows_aside, "ask_agent", made.ask)
    monkeypatch.setattr(aside, "_state", lambda api, zone: made.state)
    monkeypatch.setattr(aside, "_states", lambda api: [made.state])
    monkeypatch.setattr(aside, "_agents", lambda state, folder: AGENTS)
    return made


@pytest.fixture
def said(agents: Agents) -> Callable[..., str]:
    """The command's standard output."""

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, ["aside", *words, *SERVER])
        if done.exception is not None:
            raise done.exception
        return done.stdout

    return run


def test_the_list_says_what_when_and_until_when(said: Callable[..., str]) -> None:
    assert said("list", "books") == f"{SENTENCE}\n"


def test_the_list_for_programs_names_agents_that_did_not_tell(
    said: Callable[..., str], agents: Agents
) -> None:
    agents.silent = "agent-3"
    whole = json.loads(said("list", "books", "--json"))

    assert whole["aside"] == [
        {
            "zone": "books",
            "agent": "agent-2",
            "partition": 3,
            "generation": 5,
            "since_ms": 0,
            "until_ms": 86_400_000,
            "reset_term": 17,
            "last_term": 14,
            "lwm": 204,
            "rows": 4,
            "bytes": 1200,
        }
    ]
    assert whole["unasked"] == {"agent-3": "agent-3 at 127.0.0.1:3 cannot be reached: refused"}


def test_of_all_zones_those_are_asked_for_that_have_something(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = CliRunner().invoke(app, ["aside", "list", *SERVER])

    assert done.stdout == f"{SENTENCE}\n"
    assert {*agents.asked} == {"books"}
    assert done.stderr == "agent-3: what it has set aside is unknown: it is not online\n"


def test_nothing_aside_is_said(said: Callable[..., str], agents: Agents) -> None:
    agents.has_aside = False

    assert said("list", "books") == "nothing is set aside\n"
    agents.silent = "agent-2"
    with pytest.raises(Problem, match="zone books, partition 4: nothing is set aside by agent-1"):
        said("show", "books", "4", "--agent", "agent-1")


@pytest.mark.parametrize(
    "command",
    ["list books", "list books --json", "show books 3", "show books 3 --agent agent-2"],
)
def test_what_an_agent_that_did_not_tell_has_is_unknown(agents: Agents, command: str) -> None:
    agents.silent = "agent-2"

    done = CliRunner().invoke(app, ["aside", *command.split(), *SERVER])

    assert isinstance(done.exception, Problem)
    sentence = "no agent that answered has set anything aside; unknown: agent-2"
    assert str(done.exception).endswith(sentence)
    assert "nothing is set aside" not in done.output
    if "--json" in command:
        assert json.loads(done.stdout)["unasked"].keys() == {"agent-2"}


def test_rows_are_shown_as_text(said: Callable[..., str]) -> None:
    assert said("show", "books", "3").splitlines() == [
        SENTENCE,
        "common  string  same",
        "greeting  hash  f \\xff\\n",
        "long  string  (5.0 MB: --key shows it)",
        f"only here  string  {'x' * 100}… (200 B)",
        "written twice  string  equal",
    ]


def test_one_key_is_shown_whole(said: Callable[..., str]) -> None:
    assert said("show", "books", "3", "--key", "long").splitlines()[1:] == [
        f"long  string  {'x' * 200}"
    ]


def test_only_what_differs_is_shown_beside_the_present_rows(
    said: Callable[..., str], agents: Agents
) -> None:
    assert said("show", "books", "3", "--differs").splitlines()[1:] == [
        "deleted  deleted  now: string  there",
        "greeting  hash  f \\xff\\n  now: string  hi",
        f"only here  string  {'x' * 100}… (200 B)  now: no such key",
    ]


@pytest.mark.parametrize(("present", "shown"), [(b"x" * 200, []), (b"o" * 200, ["long"])])
def test_long_values_are_compared_one_by_one(
    said: Callable[..., str],
    agents: Agents,
    monkeypatch: pytest.MonkeyPatch,
    present: bytes,
    shown: list[str],
) -> None:
    agents.long_present = present
    monkeypatch.setattr(
        f"{__name__}.PRESENT", [Value(b"long", 6, 19, 0, "string", None, 5_000_000)]
    )

    lines = said("show", "books", "3", "--differs", "--json").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["key"] for row in rows if row["present"] is not None] == shown


def test_rows_for_programs_are_exact(said: Callable[..., str]) -> None:
    rows = [json.loads(line) for line in said("show", "books", "3", "--json").splitlines()]

    (row,) = [each for each in rows if each["key"] == "greeting"]
    assert row == {
        "agent": "agent-2",
        "generation": 5,
        "key": "greeting",
        "key_hex": b"greeting".hex(),
        "type": "hash",
        "items": ["f", "\\xff\\n"],
        "items_hex": ["66", "ff0a"],
        "bytes": 9,
        "counter": 6,
        "term": 14,
        "expires_at": 0,
    }
