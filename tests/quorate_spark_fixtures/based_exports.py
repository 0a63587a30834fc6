"""Exports of a scripted zone with and without a base, and what their files and agents tell."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from quorate.facts.keyspace import RESERVED, key_partition
from quorate.protocol.messages.tools import AskColumns, AskRows, AskUpdates
from quorate_spark.exports.base_export import Base, open_base
from quorate_spark.exports.cut import ABOVE_RESERVED
from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.manifest import Manifest, read_manifest
from quorate_spark.exports.target import Target
from quorate_spark.exports.verify import verify
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK, listening

KEYS = [b"key-%02d" % number for number in range(40)]
INTERNAL = RESERVED + b"part"
IN_0 = [key for key in KEYS if key_partition(key, 4) == 0]


@contextmanager
def filled_zone() -> Iterator[LoggedZone]:
    """Four partitions with forty keys, every other one with an expiry; its agents listen."""
    zone = LoggedZone(partitions=4)
    for number, key in enumerate(KEYS):
        zone.put(key, b"value-%d" % number, 1_999_999_999_999 if number % 2 else 0)
    with listening(zone):
        yield zone


def copies_of(zone: LoggedZone) -> ZoneCopies:
    agents = tuple(agent.address for agent in zone.agents)
    return ZoneCopies("z", agents, zone.cluster, zone.partitions, len(zone.agents))


def export(zone: LoggedZone, place: Path, base: Base | None = None, uid: str = "u") -> Manifest:
    """Export; the questions before it are forgotten."""
    for agent in zone.agents:
        agent.asked.clear()
    target = Target(str(place))
    made = export_zone(target, copies_of(zone), uid, {}, QUICK, None, base=base)
    assert verify(target, lambda done, total: None) == made
    return made


def base_of(place: Path) -> Base:
    return open_base(Target(str(place)), None)


def rows_in(place: Path) -> dict[bytes, tuple[bytes | None, int]]:
    return {
        row["key"]: (row["value"], row["expires_at"])
        for part in read_manifest(Target(str(place))).partitions
        for row in pq.read_table(place / part.file).to_pylist()
    }


def clients_rows(zone: LoggedZone) -> dict[bytes, tuple[bytes | None, int]]:
    return {key: row for key, row in zone.rows().items() if not key.startswith(RESERVED)}


def partitions_asked(zone: LoggedZone, *kinds: type) -> set[int]:
    """The partitions of such questions to agents, but for internal rows."""
    found = set()
    for ask in (ask for agent in zone.agents for ask in agent.asked if isinstance(ask, kinds)):
        if isinstance(ask, AskColumns) and (ask.first, ask.before) == (RESERVED, ABOVE_RESERVED):
            continue
        assert isinstance(ask, AskColumns | AskRows | AskUpdates)
        found.add(ask.partition)
    return found


def read_whole(manifest: Manifest) -> dict[int, str]:
    return {part.partition: part.read_whole for part in manifest.partitions if part.read_whole}


def changed(path: Path, change: str) -> None:
    """Change a file of an export so that its bytes or its rows are others."""
    table = pq.read_table(path)
    rows = table.to_pylist()
    match change:
        case "gone":
            path.unlink()
            return
        case "cut off":
            path.write_bytes(path.read_bytes()[:-20])
            return
        case "term":  # a bit of the only one, in the dictionary of its column
            data = bytearray(path.read_bytes())
            end = pq.read_metadata(path).row_group(0).column(4).data_page_offset
            assert data[end - 8 : end] == (3).to_bytes(8, "little")
            data[end - 8] ^= 2
            path.write_bytes(data)
            return
        case "higher term":
            rows[0]["term"] += 1
        case "higher counter":
            rows[0]["counter"] += 1000
        case "value":
            rows[0]["value"] = b"damaged"
        case "counter":
            rows[0]["counter"] += 1
        case "row":
            del rows[0]
        case "order":
            rows[0], rows[1] = rows[1], rows[0]
        case _:
            assert change == "column"
    made = pa.Table.from_pylist(rows, schema=table.schema)
    if change == "column":
        made = made.set_column(3, "counter", made["counter"].cast(pa.int32()))
    pq.write_table(made, path)
