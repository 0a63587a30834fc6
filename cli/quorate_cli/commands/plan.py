"""`quorate plan`: previews the migrations if an agent were lost or agents were added."""

from collections import Counter
from urllib.parse import quote, urlencode

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from quorate.planning.steps.preview import Preview, PreviewStep
from quorate_cli.commands.objects import ServerOption
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects.operator_api import parse_server
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.figures import size
from quorate_cli.terminal.options import JsonOption, WithOption, WithoutOption, ZoneArgument
from quorate_cli.terminal.teller import PlainConsole

STEPS_SHOWN = 20
console = PlainConsole()


def plan(
    zone: ZoneArgument,
    without: WithoutOption = None,
    more: WithOption = 0,
    as_json: JsonOption = False,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Preview the migrations if agents were lost or added; changes nothing."""
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    asked = urlencode([*(("without", node) for node in without or ()), ("with", str(more))])
    found = api.get(f"/plan/{quote(zone, safe='')}?{asked}", Preview)
    print_plan(zone, found, as_json)


def print_plan(zone: str, found: Preview, as_json: bool, sizes: bool = True) -> None:
    """Print a plan.  `sizes`: whether bytes are known."""
    if as_json:
        made = msgspec.to_builtins(found)
        if not sizes:
            del made["bytes"]
            for step in made["steps"]:
                del step["bytes"]
        typer.echo(msgspec.json.format(msgspec.json.encode(made), indent=2).decode())
    else:
        console.print(render(zone, found, sizes))


def render(zone: str, plan: Preview, sizes: bool = True) -> RenderableType:
    """Return the plan for people.  `sizes`: whether bytes are known."""
    parts: list[RenderableType] = []
    if plan.steps:
        parts.append(_steps(plan.steps, sizes))
        if len(plan.steps) > STEPS_SHOWN:
            parts.append(Text(f"and {len(plan.steps) - STEPS_SHOWN} more (--json: all)", "dim"))
    parts.append(_nodes(plan))
    parts += _stand_ins(plan)
    known = f" ({size(plan.bytes)})" if sizes else ""
    copies = f"{plan.copies} copies{known} in {len(plan.steps)} migrations"
    worst = f"every partition would keep at least {plan.worst_copies} copies meanwhile"
    what = f"would move {copies}; {worst}" if plan.steps else "nothing would be moved"
    parts.append(Text(f"zone {zone}: {what}; this was a preview"))
    return Group(*parts)


def _steps(steps: tuple[PreviewStep, ...], sizes: bool) -> Table:
    table = Table(title="migrations", title_justify="left")
    table.add_column("partition", justify="right")
    for heading in ("kind", "from", "to"):
        table.add_column(heading)
    for heading in (*(("size",) if sizes else ()), "copies after"):
        table.add_column(heading, justify="right")
    for step in steps[:STEPS_SHOWN]:
        moved = (size(step.bytes) if step.copies else "",) if sizes else ()
        table.add_row(
            str(step.partition), step.kind.value, step.source, step.destination, *moved,
            str(step.owning),
        )  # fmt: skip
    return table


def _stand_ins(plan: Preview) -> list[Text]:
    """Return a line for each agent that gets copies in the place of one that is away."""
    counts = Counter((each.node, each.instead_of) for each in plan.stand_ins)
    return [
        Text(
            f"{node} would stand in for {absent}, which is away, in {count}"
            f" partition{'s' if count > 1 else ''}"
        )
        for (node, absent), count in sorted(counts.items())
    ]


def _nodes(plan: Preview) -> Table:
    table = Table(title="agents", title_justify="left")
    table.add_column("agent")
    for heading in ("copies", "after", "primaries", "after"):
        table.add_column(heading, justify="right")
    for node in plan.nodes:
        counts = (
            node.copies_before, node.copies_after, node.primaries_before, node.primaries_after,
        )  # fmt: skip
        table.add_row(node.name, *map(str, counts))
    return table
