"""An import writes what is missing, goes on after an interruption, and compares the result."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from quorate.facts.keyspace import RESERVED, key_partition
from quorate.protocol.messages.tools import RestoreRows, RowsRestored
from quorate_spark.exports import import_zone as module
from quorate_spark.exports.encryption import Cipher
from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.import_zone import Imported, NotCompared, NotEmpty, import_zone
from quorate_spark.exports.manifest import PartTold, read_manifest
from quorate_spark.exports.part_file import LiveRow, read_part
from quorate_spark.exports.target import Target, TargetRefused
from quorate_spark.reading.agent_link import AgentLink, Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.writing import batches, primaries
from quorate_spark.writing.primaries import Primaries
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import QUICK, listening

KEYS = [b"key-%02d" % number for number in range(60)]
LATER_MS = 1_999_999_999_999


@contextmanager
def zone_of(partitions: int) -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=partitions)
    with listening(zone):
        yield zone


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """An export of four partitions: 60 keys, half of them with an expiry."""
    target = Target(str(tmp_path / "export"))
    with zone_of(4) as zone:
        for number, key in enumerate(KEYS):
            zone.put(key, b"value-%d" % number, LATER_MS if number % 2 else 0)
        export_zone(target, copies_of(zone), "", {}, QUICK, None)
    return target


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    """An empty zone of two partitions, but for a row of the protocol's own and a deleted key."""
    with zone_of(2) as zone:
        zone.put_all([(RESERVED + b"part", b"in doubt", 0)], 0)
        zone.put(KEYS[0], None)
        yield zone


def copies_of(zone: LoggedZone) -> ZoneCopies:
    agents = tuple(agent.address for agent in zone.agents)
    return ZoneCopies("z", agents, zone.cluster, zone.partitions, len(zone.agents))


def run(
    target: Target,
    zone: LoggedZone,
    *,
    continues: bool = False,
    into_non_empty: bool = False,
    wait_s: float = 5,
) -> Imported:
    return import_zone(
        target,
        read_manifest(target),
        copies_of(zone),
        QUICK,
        continues=continues,
        into_non_empty=into_non_empty,
        wait_s=wait_s,
    )


def expected() -> dict[bytes, tuple[bytes, int]]:
    return {k: (b"value-%d" % n, LATER_MS if n % 2 else 0) for n, k in enumerate(KEYS)}


def clients_rows(zone: LoggedZone) -> dict[bytes, tuple[bytes | None, int]]:
    return {key: row for key, row in zone.rows().items() if not key.startswith(RESERVED)}


@pytest.mark.parametrize("partitions", [1, 2, 4, 16])
def test_a_zone_of_any_number_of_partitions_gets_the_same_rows(
    target: Target, partitions: int
) -> None:
    with zone_of(partitions) as zone:
        imported = run(target, zone)

        assert clients_rows(zone) == expected()
        for ask in zone.restored:
            assert {key_partition(key, partitions) for key, _, _ in ask.rows} == {ask.partition}
    assert (imported.rows, imported.exit_code) == (60, 0)
    assert imported.digest == imported.exported_digest == read_manifest(target).digest
    assert imported.missing == imported.differing == imported.others == imported.expired == 0


@pytest.mark.parametrize(
    ("limit", "value", "open_max"),
    [("OPEN_FILES_MAX", 1, 1), ("OPEN_FILES_MAX", 3, 3), ("OPEN_BYTES_MAX", 600, 2)],
)
def test_few_files_are_open_while_a_partition_with_the_rows_of_many_is_compared(
    target: Target, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, open_max: int
) -> None:
    monkeypatch.setattr(module, limit, value)
    opened, most = set[int](), 0

    def read(target: Target, part: PartTold, *, cipher: Cipher | None) -> Iterator[LiveRow]:
        nonlocal most
        opened.add(part.partition)
        most = max(most, len(opened))
        yield from read_part(target, part, cipher=cipher)
        opened.remove(part.partition)

    monkeypatch.setattr(module, "read_part", read)
    with zone_of(1) as zone:
        zone.put(b"mine", b"1")
        imported = run(target, zone, into_non_empty=True)

    assert most == open_max
    assert (imported.rows, imported.others, imported.exit_code) == (60, 1, 0)
    assert imported.digest == imported.exported_digest
    assert imported.missing == imported.differing == imported.expired == 0


def test_agents_are_told_which_zone_of_this_name_is_meant(target: Target, zone: LoggedZone) -> None:
    copies = replace(copies_of(zone), uid="uid-7")

    import_zone(
        target,
        read_manifest(target),
        copies,
        QUICK,
        continues=False,
        into_non_empty=False,
        wait_s=5,
    )

    assert {ask.uid for ask in zone.restored} == {"uid-7"}


def test_a_zone_with_keys_is_refused_and_not_touched(target: Target, zone: LoggedZone) -> None:
    zone.put(b"mine", b"1")
    lwms = [zone.copy(0, partition).lwm for partition in range(2)]

    with pytest.raises(NotEmpty, match="is not empty, it has the key mine"):
        run(target, zone)

    assert [zone.copy(0, partition).lwm for partition in range(2)] == lwms


def test_keys_that_are_there_stay_as_they_are(target: Target, zone: LoggedZone) -> None:
    zone.put(b"mine", b"1")
    zone.put(KEYS[7], b"newer")
    zone.put(KEYS[8], b"value-8")

    imported = run(target, zone, into_non_empty=True)

    assert clients_rows(zone) == {**expected(), b"mine": (b"1", 0), KEYS[7]: (b"newer", 0)}
    assert (imported.kept, imported.differing, imported.others) == (1, 0, 1)
    assert (imported.rows, imported.exit_code, imported.keys) == (59, 0, ())


def test_a_row_that_was_kept_out_of_an_empty_zone_is_an_error(
    target: Target, zone: LoggedZone
) -> None:
    zone.put(KEYS[7], b"newer")

    imported = run(target, zone, continues=True)

    assert (imported.rows, imported.kept, imported.exit_code) == (59, 1, 1)
    assert (imported.missing, imported.differing) == (0, 0)


@pytest.mark.parametrize("damage", ["value", "key", "end"])
def test_nothing_is_written_from_an_export_that_is_damaged(
    target: Target, zone: LoggedZone, damage: str
) -> None:
    part = read_manifest(target).partitions[3]
    path = Path(target.text) / part.file
    if damage == "end":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        table = pq.read_table(path)
        column = [b"wrong", *table[damage].to_pylist()[1:]]
        place = table.schema.get_field_index(damage)
        pq.write_table(table.set_column(place, table.schema.field(place), [column]), path)

    with pytest.raises(TargetRefused, match=part.file):
        run(target, zone)

    assert clients_rows(zone) == {}
    assert zone.restored == []


def test_an_interrupted_import_goes_on_where_it_was(
    target: Target, zone: LoggedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_ROWS_MAX", 5)
    monkeypatch.setattr(batches, "BATCHES_AT_ONCE", 2)

    def refuse(ask: RestoreRows) -> RowsRestored | None:
        if len(zone.restored) == 6:
            raise OSError  # the connection is over
        return None

    zone.refuses = refuse
    with pytest.raises(Unreadable, match=r"not within|not written within"):
        run(target, zone, wait_s=0.05)
    assert 0 < len(clients_rows(zone)) < 60
    zone.refuses = lambda ask: None
    with pytest.raises(NotEmpty):
        run(target, zone)
    lwms = sum(zone.copy(0, partition).lwm for partition in range(2))

    imported = run(target, zone, continues=True)

    assert clients_rows(zone) == expected()
    assert (imported.rows, imported.kept, imported.exit_code) == (60, 0, 0)
    updates = sum(zone.copy(0, partition).lwm for partition in range(2)) - lwms
    assert updates <= 12 - 5, "what was there is not written again"


def test_rows_that_have_expired_are_left_out(
    target: Target, zone: LoggedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.time, "time", lambda: LATER_MS / 1000 + 1)

    imported = run(target, zone)

    assert set(clients_rows(zone)) == set(KEYS[::2])
    assert (imported.rows, imported.expired, imported.exit_code) == (30, 30, 0)


@pytest.mark.parametrize(("left_ms", "expired"), [(module.CLOCKS_APART_MS, 30), (60_000, 0)])
def test_a_row_that_a_primary_left_out_by_a_clock_that_is_ahead_has_expired(
    target: Target, zone: LoggedZone, monkeypatch: pytest.MonkeyPatch, left_ms: int, expired: int
) -> None:
    monkeypatch.setattr(module.time, "time", lambda: (LATER_MS - left_ms) / 1000)

    def leave_out(ask: RestoreRows) -> RowsRestored | None:
        rows = [row for row in ask.rows if not row[2]]
        zone.put_all([*rows], ask.partition)
        return RowsRestored(done=True)

    zone.refuses = leave_out

    imported = run(target, zone)

    assert (imported.rows, imported.expired, imported.missing) == (30, expired, 30 - expired)
    assert imported.exit_code == (0 if expired else 1)


def test_a_primary_that_changes_is_found_again(target: Target, zone: LoggedZone) -> None:
    def refuse(ask: RestoreRows) -> RowsRestored | None:
        if len(zone.restored) == 3:
            zone.copy(0, 0).replica_index, zone.copy(1, 0).replica_index = 1, 0
        return None

    zone.refuses = refuse

    assert run(target, zone).exit_code == 0
    assert clients_rows(zone) == expected()


def test_an_agent_that_does_not_answer_is_not_asked_for_each_partition(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take seconds until that is known.  It is asked again where no other is the primary."""
    dialled: list[str] = []
    dial = AgentLinks.to

    def noted(links: AgentLinks, address: str) -> AgentLink:
        if address not in links._open:
            dialled.append(address)
        return dial(links, address)

    monkeypatch.setattr(primaries, "SILENT_S", 1_000.0)
    monkeypatch.setattr(AgentLinks, "to", noted)
    with zone_of(8) as zone:
        away = zone.agents[2].address
        zone.agents[2].end()

        assert run(target, zone).exit_code == 0
        assert dialled.count(away) == 1
        copies = replace(copies_of(zone), agents=(away, zone.agents[0].address))
        with AgentLinks(zone.cluster, QUICK) as links:
            asked = Primaries(copies, links, 5)
            asked.find(0)
            zone.copy(0, 1).replica_index = 1
            assert asked._find(1) is None
        assert dialled.count(away) == 3


@contextmanager
def terms_that_rise(zone: LoggedZone, *, reads: int) -> Iterator[Callable[..., None]]:
    """The terms rise at each of the first reads of the comparison; yields a Progress."""
    seen: list[int] = []

    def rise(number: int) -> None:
        seen.append(number)
        for agent in range(3) if len(seen) <= reads else ():
            for partition in range(zone.partitions):
                zone.copy(agent, partition).term += 1

    def begin(what: str, done: int, total: int) -> None:
        if what == "compare":
            zone.while_read = rise

    yield begin


def compared(target: Target, zone: LoggedZone, progress: Callable[..., None]) -> Imported:
    return import_zone(
        target,
        read_manifest(target),
        copies_of(zone),
        QUICK,
        continues=False,
        into_non_empty=False,
        wait_s=5,
        progress=progress,
    )


def test_a_part_whose_primary_changes_is_compared_again(target: Target, zone: LoggedZone) -> None:
    with terms_that_rise(zone, reads=3) as progress:
        imported = compared(target, zone, progress)

    assert (imported.rows, imported.exit_code) == (60, 0)
    assert imported.digest == imported.exported_digest


def test_rows_that_cannot_be_compared_are_written(target: Target, zone: LoggedZone) -> None:
    with (
        terms_that_rise(zone, reads=10_000) as progress,
        pytest.raises(NotCompared, match="changed its owner or term while it was read"),
    ):
        compared(target, zone, progress)

    assert clients_rows(zone) == expected()


def test_batches_on_their_way_are_bounded_by_bytes_too(
    target: Target, zone: LoggedZone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_ROWS_MAX", 5)
    monkeypatch.setattr(batches, "BYTES_AT_ONCE", 60)  # less than one batch
    on_their_way: set[RestoreRows] = set()
    most = [0]

    def count(ask: RestoreRows) -> RowsRestored | None:
        if ask in on_their_way:
            on_their_way.discard(ask)  # asked a second time: it is done then
        else:
            on_their_way.add(ask)
        most[0] = max(most[0], len(on_their_way))
        return None

    zone.refuses = count

    assert run(target, zone).exit_code == 0
    assert most == [1]


def test_rows_that_a_quorum_has_already_are_asked_for_once(
    target: Target, zone: LoggedZone
) -> None:
    run(target, zone)
    before = len(zone.restored)
    asked: list[RestoreRows] = []
    zone.refuses = asked.append

    assert run(target, zone, continues=True).exit_code == 0

    assert len(asked) == len(set(asked)) == len(zone.restored) - before > 0


@pytest.mark.parametrize(("hashes", "told_apart"), [(3, True), (2, False)])
def test_keys_that_were_kept_are_counted_beyond_those_that_are_remembered(
    target: Target, zone: LoggedZone, monkeypatch: pytest.MonkeyPatch, hashes: int, told_apart: bool
) -> None:
    monkeypatch.setattr(module, "KEPT_HASHES_MAX", hashes)
    for key in KEYS[3:6]:
        zone.put(key, b"mine")

    imported = run(target, zone, into_non_empty=True)

    assert (imported.kept, imported.differing, imported.exit_code) == (3, 0, 0)
    assert imported.told_apart is told_apart


@pytest.mark.parametrize(("size", "pause_s"), [(1_000, 0.001), (2_000_000, 0.02)])
def test_large_rows_are_repeated_less_often(zone: LoggedZone, size: int, pause_s: float) -> None:
    pauses: list[float] = []
    key = KEYS[1]
    ask = RestoreRows("z", key_partition(key, 2), ((key, b"x" * size, 0),))
    with AgentLinks(zone.cluster, QUICK) as links:
        primaries = Primaries(copies_of(zone), links, 5, pauses.append)

        assert primaries.restore(ask).done

    assert pauses == [pause_s]


def test_a_backup_that_is_away_does_not_matter_and_a_primary_does(
    target: Target, zone: LoggedZone
) -> None:
    zone.agents[2].end()
    assert run(target, zone).exit_code == 0
    zone.agents[0].end()

    with pytest.raises(Unreadable, match="partition 0 has no primary that answers"):
        run(target, zone)


def test_what_is_lost_behind_an_import_is_found(target: Target, zone: LoggedZone) -> None:
    wrong = KEYS[3:7]

    def lose(what: str, done: int, total: int) -> None:
        if (what, done) != ("compare", 0):
            return
        for key in wrong:
            for agent in range(3):
                rows = zone.copy(agent, key_partition(key, 2)).rows
                rows[key] = (*rows[key][:3], None if key == wrong[0] else b"no")

    manifest, copies = read_manifest(target), copies_of(zone)
    imported = import_zone(
        target,
        manifest,
        copies,
        QUICK,
        continues=False,
        into_non_empty=False,
        wait_s=5,
        progress=lose,
    )

    assert (imported.rows, imported.missing, imported.differing, imported.kept) == (56, 1, 3, 0)
    assert set(imported.keys) == {key.decode() for key in wrong}
    assert imported.exit_code == 1
    assert imported.digest != imported.exported_digest


@pytest.mark.parametrize(
    "answer",
    [
        RowsRestored(problem="no room on agent a: its disk is full"),
        RowsRestored(waits_for="agent a to serve as its primary"),
    ],
)
def test_what_the_primary_says_is_told(
    target: Target, zone: LoggedZone, answer: RowsRestored
) -> None:
    zone.refuses = lambda ask: answer
    started = time.monotonic()

    with pytest.raises(Unreadable) as ended:
        run(target, zone, wait_s=0.05)

    assert (answer.problem or answer.waits_for) in str(ended.value)
    assert time.monotonic() - started < 5
