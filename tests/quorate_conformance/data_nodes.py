"""Judges a case about a zone's data nodes: its timers or its filter.  A real master leads it.

Ours departs in one thing: what the data nodes were at an earlier time is not kept.
"""

from collections.abc import Callable

import msgspec

from quorate.facts.zone import NEVER_MS, ZoneRecord
from quorate.planning.target.data_nodes import TimerKind
from quorate.planning.target.node_filter import node_filter
from quorate_conformance.case_files import Case
from quorate_lone_master.world import LoneMaster, placed_master

HISTORY = "earlier data nodes are not kept: nothing reads them"
QUORUM = "the quorum is a majority of the voters: a zone has no number of its own"

SETTLED_MS = 2_000
"""Longer than the master takes to notice, shorter than any time of a case but 0."""


def judge_of(case: Case) -> Callable[[Case], None] | str:
    """The judge, or why there is none."""
    if case.section == "alter_quorum":
        return QUORUM
    if case.section == "filters":
        return _filter
    return HISTORY if "read" in " ".join(case.facts["events"]) else _timers


def _filter(case: Case) -> None:
    matches = node_filter(case.facts["filter"]).matches(case.facts["attributes"])
    assert matches == case.facts["match"]


def _timers(case: Case) -> None:
    zone = case.facts["zone"]
    record = ZoneRecord(
        "uid", "zone", 2, 1, scale_up_ms=_ms(zone["up"]), scale_down_ms=_ms(zone["down"])
    )
    attributes = {
        key.removesuffix("_attr"): dict([value.split("=")])
        for key, value in zone.items()
        if key.endswith("_attr")
    }
    world = placed_master(record, nodes=tuple(case.facts["initial"]), attributes=attributes)
    began_ms = world.ms
    for event in case.facts["events"]:
        for word in event.replace("filter ", "filter:").split():
            record = _happen(world, record, word, began_ms)
        world.pass_time(SETTLED_MS)
    expected = case.facts["expect"]
    if isinstance(expected, dict):
        assert _data_nodes(world) == expected["data_nodes"]
        timer = next(t for t in world.status(record).timers if t.kind is TimerKind.SCALE_DOWN)
        wanted = expected["scale_down_timer"]
        assert timer.due_ms is not None
        fires_at_s = (timer.due_ms - (world.now.wall_ms - world.ms + began_ms)) / 1000
        assert list(timer.nodes) == wanted["nodes"]
        assert abs(fires_at_s - wanted["fires_at"]) < 1
        world.pass_time(int(1000 * wanted["fires_at"]) - (world.ms - began_ms) + SETTLED_MS)
        expected = [node for node in expected["data_nodes"] if node not in wanted["nodes"]]
    assert _data_nodes(world) == expected


def _happen(world: LoneMaster, record: ZoneRecord, word: str, began_ms: int) -> ZoneRecord:
    """Do one event: +C joins, -A leaves, down=0 changes a time, t10 passes until ten seconds,
    filter:a=b changes the filter."""
    if word.startswith("+"):
        world.connect(word[1:].rstrip("'"))
    elif word.startswith("-"):
        world.kill(word[1:])
    elif word.startswith("t"):
        world.pass_time(int(word[1:]) * 1000 - (world.ms - began_ms))
    elif word.startswith("filter:"):
        record = msgspec.structs.replace(record, filter=word.removeprefix("filter:"))
        world.master.set_zone(record, world.now)
    else:
        timer, _, seconds = word.partition("=")
        record = msgspec.structs.replace(record, **{f"scale_{timer}_ms": int(seconds) * 1000})
        world.master.set_zone(record, world.now)
    return record


def _data_nodes(world: LoneMaster) -> list[str]:
    record = world.master.zones["uid"].record
    assert record.data_nodes is not None
    return list(record.data_nodes.nodes)


def _ms(seconds: int | str) -> int:
    return NEVER_MS if seconds == "off" else int(seconds) * 1000
