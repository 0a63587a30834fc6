"""What `quorate plan` shows."""

import io

import msgspec
from rich.console import Console

from quorate.planning.steps.preview import PresentRow, PreviewStandIn, preview
from quorate.planning.target.distribute_partitions import DataNode
from quorate_cli.commands.plan import STEPS_SHOWN, render

ROWS = [PresentRow(p, ("a", "b"), ("a", "b"), 5_000_000) for p in range(60)]
NODES = [DataNode("a"), DataNode("b")]


def shown(*nodes: DataNode, without: tuple[str, ...] = ()) -> str:
    text = io.StringIO()
    plan = preview(ROWS, [*NODES, *nodes], without, 2)
    Console(file=text, width=120).print(render("books", plan))
    return text.getvalue()


def test_steps_and_totals_are_shown() -> None:
    text = shown(DataNode("new-1"))

    assert "MOVE" in text
    assert "would move 40 copies (200 MB)" in text
    assert "every partition would keep at least 2 copies" in text
    assert text.count("new-1") == STEPS_SHOWN + 1
    assert "more (--json: all)" in text
    assert "new-1" in text


def test_agents_that_stand_in_for_one_that_is_away_are_shown() -> None:
    stand_ins = tuple(
        PreviewStandIn(*each) for each in ((0, "c", "b"), (1, "d", "b"), (2, "c", "b"))
    )
    plan = msgspec.structs.replace(preview(ROWS, NODES, (), 2), stand_ins=stand_ins)
    text = io.StringIO()
    Console(file=text, width=120).print(render("books", plan))

    assert "c would stand in for b, which is away, in 2 partitions\n" in text.getvalue()
    assert "d would stand in for b, which is away, in 1 partition\n" in text.getvalue()


def test_nothing_to_move_is_said() -> None:
    assert "nothing would be moved; this was a preview" in shown(without=("b",))
