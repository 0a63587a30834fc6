"""Arguments and options that `quorate` and `kubectl quorate` have in common."""

import enum
from typing import Annotated

import typer

from quorate.facts.read_limit import MAX_MIB_PER_SECOND_PER_AGENT, MIB_PER_SECOND_MAX
from quorate.wire.jobs.executors import EXECUTORS_MAX


class ValidationLevel(enum.StrEnum):
    """How deeply copies are compared."""

    COUNTERS = "counters"
    DIGEST = "digest"
    ROWS = "rows"


class ValidationMode(enum.StrEnum):
    """Treatment of writes during the run."""

    LIVE = "live"
    IDLE = "idle"


class KeyNames(enum.StrEnum):
    """How a verdict names keys."""

    ESCAPED = "escaped"
    HASHED = "hashed"


ZoneArgument = Annotated[str, typer.Argument(metavar="ZONE")]
ZoneFilter = Annotated[
    str | None,
    typer.Argument(metavar="[ZONE]", help="Show only events of this zone and of agents."),
]
KindArgument = Annotated[
    str, typer.Argument(metavar="KIND", help="zones (zn) or storageclusters (stc).")
]
LevelOption = Annotated[ValidationLevel, typer.Option(help="How deeply copies are compared.")]
ModeOption = Annotated[
    ValidationMode,
    typer.Option(help="Clients may write meanwhile, or nothing may be written."),
]
KeyNamesOption = Annotated[
    KeyNames, typer.Option("--keys", help="Name keys as they are, or by a hash.")
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        MAX_MIB_PER_SECOND_PER_AGENT,
        min=1,
        max=MIB_PER_SECOND_MAX,
        help="MiB per second that are read of each agent at most. Default: no limit.",
    ),
]
ExecutorsOption = Annotated[
    int,
    typer.Option(
        min=0, max=EXECUTORS_MAX, help="Pods beside the Job's own that read rows. 0: it reads all."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON; docs/json.md describes the keys.")
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")]
ClusterOption = Annotated[
    str, typer.Option("--cluster", help="Name of the StorageCluster, if there are several.")
]
WithoutOption = Annotated[
    list[str] | None, typer.Option("--without", help="Assume that this agent is lost.")
]
WithOption = Annotated[
    int, typer.Option("--with", min=0, help="Assume that this many agents are added.")
]
AsideZoneArgument = Annotated[str | None, typer.Argument(metavar="[ZONE]")]
PartitionArgument = Annotated[int, typer.Argument(metavar="PARTITION", min=0)]
AsideAgentOption = Annotated[
    str | None, typer.Option("--agent", help="Only what this agent has set aside.")
]
KeyOption = Annotated[
    str | None, typer.Option("--key", help="Only this key, however long its value.")
]
DiffersOption = Annotated[
    bool, typer.Option("--differs", help="Only what differs from the zone's present rows.")
]


def limit_words(limit: int | None) -> list[str]:
    """Return the option of a program that reads copies; empty: no limit."""
    return [] if limit is None else [f"{MAX_MIB_PER_SECOND_PER_AGENT}={limit}"]


def limit_field(limit: int | None) -> dict[str, object]:
    """Return the field of an object whose pod reads copies; empty: no limit."""
    return {} if limit is None else {"maxMiBPerSecondPerAgent": limit}


def executors_field(executors: int) -> dict[str, object]:
    """Return the field of an object whose pods read rows; empty: one pod reads all."""
    return {"executors": executors} if executors else {}
