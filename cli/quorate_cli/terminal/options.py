"""Arguments and options that `quorate` and `kubectl quorate` have in common."""

import enum
from typing import Annotated

import typer


class ValidationLevel(enum.StrEnum):
    """How deeply copies are compared."""

    COUNTERS = "counters"
    DIGEST = "digest"
    ROWS = "rows"


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
KeyNamesOption = Annotated[
    KeyNames, typer.Option("--keys", help="Name keys as they are, or by a hash.")
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
