"""Sets an agent's data folder aside if the other agents have what it held, and puts it back.

Folders are put back only if no agent has the data any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from quorate.facts.partition_row import quorum
from quorate.facts.zone import StorageKind
from quorate.protocol.status import ZoneStatus
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.processes.process import run
from quorate_cli.terminal.problem import Problem

if TYPE_CHECKING:
    from quorate.wire.zone import Zone

SECONDS = 60.0
"""Seconds until it must be done: folders are renamed, nothing is copied."""

_NAMES = ("folder.json", "folder.json.put-back")
"""The identity of a set-aside's store, before and after it was put back."""

DISPLACED = "was put back in its place"
"""The end of the reason for which the agent keeps what was there before."""


def check_can_be_filled(name: str, state: ClusterState, zones: Sequence[Zone]) -> None:
    """Raise Problem unless the other agents have all that `name` may hold, as the operator sees it.

    A partition can do without this voter if enough of its other copies are owners to be a quorum
    without it: together they have every answered write.
    """
    node = state.node(name)
    if node is not None and node.online:
        raise Problem(f"{name} is online: stop it first, with `quorate dev stop {name}`")
    for zone in zones:
        if zone.spec.storage is not StorageKind.PERSISTENT:
            continue
        status = state.zone(zone.metadata.name)
        if status is None:
            raise Problem(
                f"{name} was not set aside: the operator has no state of zone"
                f" {zone.metadata.name} yet: try again soon"
            )
        _check_zone(name, status, zone.spec.replicas)


def _check_zone(name: str, status: ZoneStatus, replicas: int) -> None:
    owners = replicas - max(status.missing_copies, default=0)
    needed = quorum(replicas, 1)
    if owners >= needed:
        return
    count = "no other agent has" if owners <= 0 else f"only {owners} other agents have"
    raise Problem(
        f"{name} was not set aside: {count} a copy of some partition of zone {status.name}, and"
        f" {needed} are needed to fill a new store without losing acknowledged writes: start the"
        " other agents (`quorate dev up`), or keep the folder and repair the file"
    )


def check_all_is_lost(state: ClusterState, zones: Sequence[Zone]) -> None:
    """Raise Problem unless every partition of every Persistent zone is LOST.

    If others have, or may have, what was answered, an old store that votes again could undo it.
    """
    kept = [zone for zone in zones if zone.spec.storage is StorageKind.PERSISTENT]
    for zone in kept:
        status = state.zone(zone.metadata.name)
        if status is None or status.lost < status.partitions:
            lost = "unknown" if status is None else f"{status.lost} of {status.partitions}"
            raise Problem(
                f"nothing was put back: not all partitions of zone {zone.metadata.name} are LOST"
                f" ({lost}): other agents fill the new stores, and an old store that votes again"
                " could undo writes acknowledged since; see `quorate status`"
            )
    if not kept:
        raise Problem("nothing was put back: no Persistent zone is declared")


class SetAside(NamedTuple):
    """A set-aside of an agent.  `is_back`: it was put back, and is the agent's folder now."""

    number: int
    is_back: bool


def newest_set_aside(data: Path) -> SetAside | None:
    """Return the newest that may be put back; None if there is none.

    What another one displaced when that was put back does not count: it holds no data that the
    zones miss, and a second call after an interrupted one would give it back."""
    found = [
        SetAside(int(number), file.name != _NAMES[0])
        for name in _NAMES
        for file in data.glob(f"set-aside-*/{name}")
        if (number := file.parent.name.rpartition("-")[2]).isdecimal() and not _is_displaced(file)
    ]
    return max(found, default=None)


def _is_displaced(file: Path) -> bool:
    try:
        return file.with_name("reason.txt").read_text().rstrip().endswith(DISPLACED)
    except FileNotFoundError:
        return False


def put_back(command: Sequence[str], number: int) -> None:
    """Have the agent put a set-aside back, by its own command line."""
    _run([*command, "--put-back", str(number)])


def set_aside(command: Sequence[str], reason: str) -> str:
    """Have the agent set its folder aside, by its own command line; return where it is kept."""
    return _run([*command, "--set-aside", reason])


def _run(command: Sequence[str]) -> str:
    late = (
        f"{command[0]} was not done after {SECONDS:.0f} s, and was killed: whether it has"
        " changed anything is unknown; the same command again completes what was begun"
    )
    done = run(command, SECONDS, late)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it printed no error"]
        raise Problem(said[-1])
    return done.stdout.strip()
