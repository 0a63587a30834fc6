"""What `quorate status` shows of agents, zones and migrations."""

from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console, RenderableType

from quorate.planning.queue.retries import StuckMigration
from quorate.planning.steps.intent import Intent
from quorate.planning.target.data_nodes import TimerKind
from quorate.protocol.status import MigrationStatus, NodeStatus, TimerStatus, ZoneStatus
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.objects.object_view import print_description, print_list, print_whole, value_at
from quorate_cli.objects.resources import ZONE, Whole
from quorate_cli.objects.status_view import StatusView
from quorate_cli.terminal.figures import size
from quorate_lone_master.zone_status import status_of_zone


def _node(name: str, online: bool = True) -> NodeStatus:
    state = "Online" if online else "Offline"
    return NodeStatus(name, "a" * 32, 1, online, state, f"127.0.0.1:710{name[-1]}", "", 21, 64)


def _zone(**changes: Any) -> ZoneStatus:
    """Of two agents' ports: one is no member any more."""
    return status_of_zone(**{"ports": {"agent-1": 7000, "agent-9": 7009}, **changes})


def _state(*zones: ZoneStatus, problem: str = "") -> ClusterState:
    nodes = (_node("agent-1"), _node("agent-2", online=False))
    return ClusterState("main", "here/1", problem, 3, nodes, zones)


def _text(look: RenderableType) -> str:
    console = Console(file=StringIO(), width=100, color_system=None)
    console.print(look)
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_an_agent_without_room_is_shown_with_its_folder() -> None:
    zone = _zone(full={"agent-1": "/data/agent-1: 7 bytes left"})

    text = _text(StatusView().render([_state(zone)]))

    assert "zone books: agent agent-1 is full: /data/agent-1: 7 bytes left" in text


def test_data_of_a_zone_without_a_record_is_named_with_the_way_out() -> None:
    nodes = (msgspec.structs.replace(_node("agent-2"), unrecorded=("uid-7",)),)
    state = ClusterState("main", "here/1", "", 3, nodes, (_zone(),))

    said = " ".join(_text(StatusView().render([state])).split())

    assert (
        "cluster main: agents have data of zones without a record: uid-7 (agent-2): "
        "`quorate dev recover`"
    ) in said
    assert "before you delete one by `quorate delete zone NAME`, compare this id with" in said
    assert "without a record" not in _text(StatusView().render([_state(_zone())]))


def test_rows_that_are_set_aside_are_counted_with_the_command_that_lists_them() -> None:
    zone = _zone(aside={"agent-1": (2, 900), "agent-3": (1, 4_200_000)})
    said = " ".join(_text(StatusView().render([_state(zone)])).split())

    assert (
        "rows of 3 copies are set aside after resets (agent-1 2, agent-3 1; 4.2 MB):"
        f" `quorate aside list {zone.name}`"
    ) in said


def test_agents_and_zones_are_listed() -> None:
    text = _text(StatusView().render([_state(_zone())]))

    assert "cluster main: 1 of 2 agents online, master term 3" in text
    assert "agent-2" in text
    assert "Offline" in text
    assert "64 of 64" in text
    assert "7000" in text
    assert "7009" not in text  # the port of an agent that is no member any more
    assert "nothing to do" not in text
    assert "planned" not in text  # there is nothing to be done


def test_what_is_waited_for_is_said_while_partitions_are_not_as_declared() -> None:
    zone = _zone(available=40, degraded=24, sentence="waiting for agent-2 to be back")

    text = _text(StatusView().render([_state(zone)]))

    assert "zone books: waiting for agent-2 to be back" in text


def test_migrations_that_are_not_counted_are_not_shown_as_done() -> None:
    view = StatusView()
    move = MigrationStatus(3, "MOVE", "agent-1", "agent-2", "under way", 0, 0)
    view.render([_state(_zone(migrations_running=8, migrations_queued=40))])

    unled = _zone(phase="Unknown", migrations_running=1, migrations=(move,))
    text = _text(view.render([_state(unled)]))

    assert "zone books: 1 migrations running, ? waiting" in text
    assert "migrations done" not in text


def test_a_bar_counts_from_the_most_there_ever_was_to_do() -> None:
    view = StatusView()
    move = MigrationStatus(3, "MOVE", "agent-1", "agent-2", "filling", 10, 100)
    view.render([_state(_zone(migrations_running=8, migrations_queued=40))])

    text = _text(
        view.render([_state(_zone(migrations_running=8, migrations_queued=4, migrations=(move,)))])
    )

    assert "zone books: 36 of 48 migrations done" in text
    assert "partition 3 MOVE agent-1 > agent-2" in text
    view.render([_state(_zone())])
    text = _text(view.render([_state(_zone(migrations_running=1, migrations=(move,)))]))
    assert "zone books: 1 migrations running, 0 waiting" in text  # how many there were is forgotten


def test_what_is_planned_is_counted_and_the_first_are_named() -> None:
    move = MigrationStatus(3, "MOVE", "agent-1", "agent-2", "filling", 10, 100)
    intents = (Intent(3, ("a", "b"), ("a", "c"), ("a", "d")), Intent(4, ("a",), append=("b",)))
    zone = _zone(
        migrations_running=1, migrations_queued=12, migrations=(move,), planned=11, intents=intents
    )

    text = _text(StatusView().render([_state(zone)]))

    line = next(line for line in text.splitlines() if "64 of 64" in line)
    assert [cell.strip() for cell in line.split("│")][4:7] == ["0", "0", "1 / 11"]
    assert "partition 3: a, b > a, c (pending) > a, d (planned)" in text
    assert "partition 4: a; to be re-added: b" in text
    assert "and 9 more with something planned" in text


def test_the_first_look_does_not_say_how_many_were_done() -> None:
    move = MigrationStatus(3, "MOVE", "agent-1", "agent-2", "filling", 10, 100)

    zone = _zone(migrations_running=1, migrations_queued=12, migrations=(move,))
    text = _text(StatusView().render([_state(zone)]))

    assert "zone books: 1 migrations running, 12 waiting" in text
    assert " of " not in text.partition("zone books:")[2]


def test_where_nothing_can_be_moved_there_is_no_progress() -> None:
    """An agent was killed, and no other could take its copies."""
    sentence = "64 partitions have fewer than 3 copies; agent-1 is offline and waited for"
    zone = _zone(available=0, degraded=64, migrations_queued=64, sentence=sentence)

    text = " ".join(_text(StatusView().render([_state(zone)])).split())

    moved = "zone books: 64 partitions are not placed as planned, and nothing is being moved now"
    assert moved in text
    assert f"zone books: {sentence}" in text
    assert "migrations" not in text


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([], "no cluster is declared; create one: quorate dev up"),
        ([_state()], "no zone is declared; declare one: quorate apply -f examples/zone.yaml"),
        ([_state(problem="the metastore cannot be read")], "main is not led: the metastore cannot"),
        ([_state(_zone(spread_violations=(("room-1", 3),)))], "3 partitions have two copies"),
        (
            [_state(_zone(stuck=(StuckMigration(5, "agent-4", 3, "it left"),)))],
            "partition 5 to agent-4 failed 3 times, last: it left",
        ),
        (
            [_state(_zone(timers=(TimerStatus(TimerKind.SCALE_UP, ("agent-4",), 45_000),)))],
            "agent-4 joined; copies go there from 1970-01-01 00:00:45 UTC on",
        ),
        (
            [_state(_zone(timers=(TimerStatus(TimerKind.SCALE_DOWN, ("b", "c"), None),)))],
            "dataNodesAutoAdjustScaleDownSeconds is Never",
        ),
    ],
)
def test_what_a_person_should_do_is_said(states: list[ClusterState], said: str) -> None:
    assert said in _text(StatusView().render(states))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (123_456, "123 KB"), (2_500_000_000, "2.5 GB")],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


BOOKS: Whole = {
    "apiVersion": "quorate.io/v1alpha1",
    "kind": "Zone",
    "metadata": {"name": "books", "creationTimestamp": "2020-01-01T00:00:00Z"},
    "spec": {"clusterRef": {"name": "main"}, "partitions": 64, "replicas": 3},
    "status": {
        "phase": "Available",
        "conditions": [
            {"type": "Accepted", "status": "True", "message": "led by main"},
            {"type": "Available", "status": "False", "message": "waiting for agents"},
        ],
    },
}


def _console() -> tuple[Console, StringIO]:
    file = StringIO()
    return Console(file=file, width=120, color_system=None), file


def test_a_list_has_the_columns_of_the_kind() -> None:
    console, file = _console()

    print_list(ZONE, [BOOKS], console)

    heading, line = file.getvalue().splitlines()
    assert heading.split()[:4] == ["NAME", "CLUSTER", "PARTITIONS", "REPLICAS"]
    assert line.split()[:4] == ["books", "main", "64", "3"]
    assert "False" in line


def test_an_object_is_printed_whole() -> None:
    for form, said in (("yaml", "partitions: 64"), ("json", '"partitions": 64')):
        console, file = _console()
        print_whole(BOOKS, form, console)
        assert said in file.getvalue()


def test_a_description_ends_with_the_sentences_of_the_conditions_in_80_columns() -> None:
    file = StringIO()
    message = "64 partitions have fewer than 3 copies; agent-1 is offline and waited for"
    condition = {
        "type": "FullyReplicated",
        "status": "False",
        "reason": "CopiesMissing",
        "message": message,
        "lastTransitionTime": "2026-11-24T08:22:20Z",
    }

    print_description(
        ZONE, {**BOOKS, "status": {"conditions": [condition]}}, Console(file=file, width=80)
    )

    *_, first, second = file.getvalue().splitlines()
    assert first.strip() == ("FullyReplicated is False (CopiesMissing) since 2026-11-24T08:22:20Z")
    assert second.strip() == message  # in one line, not in a narrow column


def test_a_path_that_leads_nowhere_finds_nothing() -> None:
    assert value_at(BOOKS, ".status.conditions[?(@.type=='Available')].status") == "False"
    assert value_at(BOOKS, ".status.conditions[?(@.type=='Other')].status") is None
    assert value_at(BOOKS, ".spec.clusterRef.name.more") is None


def test_unavailable_partitions_that_can_be_read_or_are_lost_are_shown() -> None:
    zone = _zone(available=0, unavailable=64, read_only=60, lost=2)
    assert "64 (60 read-only, 2 lost)" in _text(StatusView().render([_state(zone)]))
    zone = _zone(available=60, unavailable=4, read_only=4)
    assert "4 (4 read-only)" in _text(StatusView().render([_state(zone)]))
