"""Shows what a cluster does as tables."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from quorate_cli.objects.load import AgentLoad, CommandRates, Load, ZoneLoad
from quorate_cli.objects.status_view import BAD, BUSY, GOOD, QUIET
from quorate_cli.terminal.figures import duration, size

UNKNOWN = "-"
ALMOST_ALL = 0.9
RATES = ("reads\n/s", "writes\n/s", "others\n/s", "failed\n/s")


def load_view(load: Load) -> RenderableType:
    """Return the tables, of at most 80 columns where names and numbers are short."""
    parts = [_zones(load), _agents(load), _states(load)]
    told = {
        **({"operator": load.operator_problem} if load.operator_problem else {}),
        **{agent.name: agent.problem for agent in load.agents if agent.problem},
    }
    return Group(*parts, *(Text(f"{name}: {why}", BAD) for name, why in told.items()))


def _zones(load: Load) -> Table:
    headings = ("whole/few/\nunavailable", "moves", "moved", "lag")
    table = _table(f"zones, over {load.seconds:.1f} s", "zone", *RATES, *headings)
    for zone in load.zones:
        table.add_row(zone.name, *_rates(zone.rates), *_partitions(zone), str(zone.lag_updates))
    return table


def _partitions(zone: ZoneLoad) -> list[RenderableType]:
    counts = (zone.available, zone.degraded, zone.unavailable)
    moved = zone.moved_bytes_per_s
    moves = (zone.migrations_running, zone.migrations_queued)
    return [
        Text(
            "/".join(map(_number, counts)),
            BAD if zone.unavailable else BUSY if zone.degraded else "",
        ),
        UNKNOWN if None in moves else "+".join(map(_number, moves)),
        UNKNOWN if moved is None else f"{size(round(moved))}/s",
    ]


def _agents(load: Load) -> Table:
    table = _table("agents", "agent", *RATES, "read\np50, p99", "write\np50, p99")
    for agent in load.agents:
        if not agent.problem:
            times = (_times(agent.read_s), _times(agent.write_s))
            table.add_row(agent.name, *_rates(agent.rates), *times)
    return table


def _states(load: Load) -> Table:
    headings = ("clients", "lag", "memory", "for\nclients", "disk\nfree")
    table = _table("", "agent", "state", *headings)
    for agent in load.agents:
        table.add_row(agent.name, *_state(agent))
    return table


def _state(agent: AgentLoad) -> list[RenderableType]:
    if agent.problem:
        return [Text("silent", BAD)]
    used = agent.client_memory_bytes / max(agent.client_memory_max_bytes, 1)
    return [
        Text("led", GOOD) if agent.led else Text("no master", BUSY),
        str(agent.connections),
        str(agent.lag_updates),
        size(agent.memory_bytes),
        Text(f"{used:.0%}", BAD if used > ALMOST_ALL else ""),
        size(agent.disk_free_bytes),
    ]


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _rates(rates: CommandRates) -> list[RenderableType]:
    plain: list[RenderableType] = [
        _rate(each) for each in (rates.reads, rates.writes, rates.others)
    ]
    return [*plain, Text(_rate(rates.failed), BAD if rates.failed else QUIET)]


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.1f}"


def _times(times: tuple[float, float] | None) -> str:
    return UNKNOWN if times is None else ", ".join(map(duration, times))


def _number(count: int | None) -> str:
    return UNKNOWN if count is None else str(count)
