"""Encrypted exports: nothing of the rows is in their files, and every change of these is found."""

import json
import random
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from quorate.protocol.messages.tools import RowsRestored
from quorate.wire.exports.export_result import (
    ExportResult,
    RunOutcome,
    encode_export_result,
)
from quorate_spark import __main__ as command
from quorate_spark.exports.encryption import Cipher, unsealed
from quorate_spark.exports.export_key import ExportKey, KeyRefused
from quorate_spark.exports.manifest import (
    MANIFEST,
    Manifest,
    cipher_of,
    open_manifest,
    read_manifest,
)
from quorate_spark.exports.part_file import PartWriter, read_part
from quorate_spark.exports.target import Target, TargetRefused
from quorate_spark.exports.verify import verify
from quorate_spark.row_columns import RowColumns
from quorate_spark_fixtures.export_runs import run, told_by
from quorate_spark_fixtures.logged_zone import LoggedZone
from quorate_spark_fixtures.scripted_zone import listening

KEY, OTHER = b64encode(bytes(range(32))).decode(), b64encode(bytes(range(24))).decode()
ROWS = 40

Captured = pytest.CaptureFixture[str]


def unguessable(number: int) -> bytes:
    """Return bytes that no compression shortens: in a file in the clear they are as such."""
    return random.Random(f"{number}").randbytes(64)


@pytest.fixture
def zone() -> Iterator[LoggedZone]:
    zone = LoggedZone(partitions=2)
    for number in range(ROWS):
        zone.put(unguessable(number), unguessable(-number - 1), 1_999_999_999_999)
    with listening(zone):
        yield zone


@pytest.fixture
def key(tmp_path: Path) -> str:
    return key_file(tmp_path / "key", KEY)


def key_file(path: Path, text: str) -> str:
    """Return the option that names a new file with this key."""
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return f"--encryption-key-file={path}"


def whole(target: Path, secret: bytes = bytes(range(32))) -> Manifest:
    place = Target(str(target))
    return open_manifest(place, read_manifest(place), ExportKey(secret))


def contents(target: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in target.iterdir()}


def test_nothing_of_the_rows_is_in_any_file(zone: LoggedZone, tmp_path: Path, key: str) -> None:
    assert run("export", zone, tmp_path / "clear") == 0
    assert run("export", zone, tmp_path / "export", key) == 0
    manifest = whole(tmp_path / "export")
    digests = [manifest.digest, *(part.digest for part in manifest.partitions)]
    rows = [unguessable(number) for number in range(-ROWS, ROWS)]

    clear, files = contents(tmp_path / "clear"), contents(tmp_path / "export")

    assert len(files) == len(clear) == 3
    in_clear = b"".join(clear.values())
    assert all(each in in_clear for each in rows), "this is how they would be found"
    assert all(each.encode() in in_clear for each in digests)
    for name, data in files.items():
        for each in (*rows, *(digest.encode() for digest in digests)):
            assert each not in data, name
        for each in digests:
            assert bytes.fromhex(each) not in data, name
        for column in (b"key", b"value", b"expires_at"):
            assert column not in data or name == MANIFEST, "footers are encrypted"


def test_files_of_equal_rows_have_nothing_in_common(
    zone: LoggedZone, tmp_path: Path, key: str
) -> None:
    """Not with the same key, either: each export has a salt, and each file its own key."""
    for each in ("one", "two"):
        assert run("export", zone, tmp_path / each, key) == 0
    one, two = whole(tmp_path / "one"), whole(tmp_path / "two")

    assert one.digest == two.digest
    assert one.encryption is not None
    assert two.encryption is not None
    assert one.encryption.key == two.encryption.key
    assert one.encryption.salt != two.encryption.salt
    parts = [
        tmp_path / at / part.file
        for at, of in (("one", one), ("two", two))
        for part in of.partitions
    ]
    blocks = [
        {data[at : at + 16] for at in range(4, len(data) - 8, 16)}
        for data in map(Path.read_bytes, parts)
    ]
    assert sum(map(len, blocks)) == len(set().union(*blocks))
    secret, salt = ExportKey(bytes(32)), bytes(16)
    assert len({secret.for_file(salt, "a"), secret.for_file(salt, "b")}) == 2
    assert secret.for_file(salt, "a") != secret.for_file(bytes(15) + b"1", "a")


def test_keys_are_derived_as_hkdf_expand_does() -> None:
    """RFC 5869, appendix A.1: the first block of its output."""
    from quorate_spark.exports.export_key import _expanded

    secret = bytes.fromhex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    block = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"

    assert _expanded(secret, bytes.fromhex("f0f1f2f3f4f5f6f7f8f9")).hex() == block
    assert "077709" not in repr(ExportKey(secret))


@pytest.mark.parametrize("length", [16, 24, 32])
def test_an_encrypted_export_is_verified_and_imported(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, capsys: Captured, length: int
) -> None:
    secret = bytes(range(length))
    key, target = key_file(tmp_path / "key", b64encode(secret).decode()), tmp_path / "export"
    key_id = ExportKey(secret).id

    assert run("export", zone, target, key, "--verify", "--encrypted") == 0
    said = capsys.readouterr().out
    assert f"encrypted with key {key_id}" in said
    assert f"quorate import {target} ZONE --encryption-key-file {tmp_path}/key" in said
    assert command.main(["verify", str(target), key]) == 0
    said = capsys.readouterr().out
    digest = whole(target, secret).digest
    assert f"encrypted with key {key_id}\ndigest {digest}" in said
    assert command.main(["verify", str(target), key, "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (told["format"], told["digest"], len(told["partitions"])) == (2, digest, 2)
    assert sorted(told["encryption"]) == ["key", "salt"]
    assert told["encryption"]["key"] == key_id
    assert run("import", empty, target, key, "--check") == 0
    assert run("import", empty, target, key, "--json", f"--export-id={told['export_id']}") == 0
    imported = json.loads(capsys.readouterr().out.split("\n", 1)[1])
    assert (imported["rows"], imported["digest"]) == (ROWS, digest)
    assert empty.rows() == zone.rows()


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (b64encode(bytes(31)).decode(), 0o600, "has 31 bytes: a key is 16, 24 or 32 random bytes"),
        ("", 0o600, "is empty"),
        ("hush hush", 0o600, "is not base64"),
        (bytes(range(16)).hex(), 0o600, "has hexadecimal digits: a key is 16, 24 or 32 random"),
        (bytes(range(0xE0, 0x100)).hex().upper(), 0o600, "has hexadecimal digits"),
        ("hüsch", 0o600, "is not base64"),
        (KEY, 0o640, "others can read or write it (mode 0640): chmod 600 "),
        (KEY, 0o602, "others can read or write it (mode 0602): chmod 600 "),
    ],
)
def test_a_file_that_is_no_key_is_refused(
    zone: LoggedZone,
    empty: LoggedZone,
    tmp_path: Path,
    capsys: Captured,
    text: str,
    mode: int,
    why: str,
) -> None:
    good, bad = key_file(tmp_path / "good", KEY), key_file(tmp_path / "bad key", text)
    (tmp_path / "bad key").chmod(mode)
    message = tmp_path / "message"
    assert run("export", zone, tmp_path / "export", good) == 0
    capsys.readouterr()

    assert run("export", zone, tmp_path / "none", bad, f"--termination-message={message}") == 2
    assert command.main(["verify", str(tmp_path / "export"), bad]) == 2
    assert run("import", empty, tmp_path / "export", bad) == 2

    said = capsys.readouterr().err
    assert said.count(f"--encryption-key-file {tmp_path}/bad key") == said.count(why) == 3
    assert not text.strip() or text not in said
    assert not (tmp_path / "none").exists()
    assert told_by(message).outcome is RunOutcome.FAILED, "nothing was exported"
    assert empty.rows() == {}


def test_a_file_that_is_not_there_is_named(tmp_path: Path, zone: LoggedZone, capsys: Any) -> None:
    option = f"--encryption-key-file={tmp_path}"

    assert run("export", zone, tmp_path / "export", f"{option}/key") == 2
    assert f"{tmp_path}/key: there is no such file: name the file" in capsys.readouterr().err
    assert run("export", zone, tmp_path / "export", option) == 2
    assert f"{tmp_path} cannot be read: Is a directory" in capsys.readouterr().err


def test_an_environment_variable_may_have_the_key(
    zone: LoggedZone, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert run("export", zone, tmp_path / "clear", "--encrypted") == 2
    assert "QUORATE_EXPORT_KEY is not set" in capsys.readouterr().err
    for text, why in (("", "is empty"), ("c2hvcnQ=", "has 5 bytes"), ("!", "is not base64")):
        monkeypatch.setenv("QUORATE_EXPORT_KEY", text)
        assert run("export", zone, tmp_path / "clear") == 2, "else it would be in the clear"
        assert f"QUORATE_EXPORT_KEY {why}" in capsys.readouterr().err
    assert not (tmp_path / "clear").exists()

    monkeypatch.setenv("QUORATE_EXPORT_KEY", KEY)
    assert run("export", zone, tmp_path / "export", "--encrypted", "--verify") == 0
    monkeypatch.setenv("QUORATE_EXPORT_KEY", OTHER)
    assert command.main(["verify", str(tmp_path / "export")]) == 2
    assert command.main(["verify", str(tmp_path / "export"), key]) == 0, "the file goes first"


def test_another_key_none_or_one_too_many_is_refused(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, key: str, capsys: Captured
) -> None:
    clear, target, message = tmp_path / "clear", tmp_path / "export", tmp_path / "message"
    other = key_file(tmp_path / "other", OTHER)
    ids = [ExportKey(bytes(range(32))).id, ExportKey(bytes(range(24))).id]
    assert run("export", zone, clear) == run("export", zone, target, key, "--run=r") == 0
    capsys.readouterr()

    for place, options, why in (
        (target, (other,), f"with key {ids[0]}, and the key {ids[1]} is given"),
        (target, (), f"is encrypted with key {ids[0]}, and no key is given"),
        (clear, (key,), f"is not encrypted, and the key {ids[0]} is given"),
    ):
        assert command.main(["verify", str(place), *options]) == 2
        assert run("import", empty, place, *options, "--check") == 2
        assert run("import", empty, place, *options) == 2
        said = capsys.readouterr().err
        assert said.count(f"{place} {why}" if why[0] == "i" else why) == 3
        assert (said.count("nothing is verified"), said.count("nothing is imported")) == (1, 2)
    assert empty.rows() == {}
    again = ("--run=r", "--verify", f"--termination-message={message}")
    assert run("export", zone, target, other, *again) == 2
    assert told_by(message).outcome is RunOutcome.UNKNOWN, "the export may be good"
    assert run("export", zone, target, key, *again) == 0
    assert told_by(message).outcome is RunOutcome.COMPLETE, "it was found, and only read back"


def test_an_export_that_is_there_has_to_be_encrypted_with_the_key(
    zone: LoggedZone, tmp_path: Path, key: str, capsys: Captured
) -> None:
    """Also if it is not read back."""
    clear, target = tmp_path / "clear", tmp_path / "export"
    other = key_file(tmp_path / "other", OTHER)
    assert run("export", zone, clear, "--run=r") == run("export", zone, target, key, "--run=r") == 0

    for place, options, why in (
        (clear, (key, "--encrypted"), "is not encrypted, and the key"),
        (clear, ("--encrypted",), "QUORATE_EXPORT_KEY is not set"),
        (target, (other,), "and the key"),
        (target, (), "and no key is given"),
    ):
        assert run("export", zone, place, "--run=r", *options) == 2
        assert why in capsys.readouterr().err
    assert run("export", zone, target, key, "--run=r", "--encrypted") == 0


def changed(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_changed_byte_is_found_wherever_it_is(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, key: str, capsys: Captured
) -> None:
    target = tmp_path / "export"
    assert run("export", zone, target, key) == 0
    part = target / whole(target).partitions[1].file
    before = part.read_bytes()
    place, secret = Target(str(target)), ExportKey(bytes(range(32)))

    for at in (*range(8), *range(8, len(before) - 8, 97), *range(len(before) - 8, len(before))):
        changed(part, at)
        with pytest.raises(TargetRefused, match=part.name):
            verify(place, lambda done, total: None, secret)
        part.write_bytes(before)
    changed(part, 100)
    assert command.main(["verify", str(target), key]) == 1
    assert f"{part.name} was changed, or is another file" in capsys.readouterr().err
    assert run("import", empty, target, key) == 2
    assert empty.rows() == {}


def test_files_that_were_swapped_are_found(
    zone: LoggedZone, tmp_path: Path, key: str, capsys: Captured
) -> None:
    """Of one export, of two exports with the same key, and one in the clear in its place."""
    for each in ("export", "other"):
        assert run("export", zone, tmp_path / each, key) == 0
    assert run("export", zone, tmp_path / "clear") == 0
    first, second = (
        tmp_path / "export" / each.file for each in whole(tmp_path / "export").partitions
    )
    of_other = tmp_path / "other" / whole(tmp_path / "other").partitions[0].file
    in_clear = next((tmp_path / "clear").glob("partition-00000-*"))
    data = first.read_bytes()
    capsys.readouterr()

    for foreign in (second, of_other, in_clear):
        first.write_bytes(foreign.read_bytes())
        assert command.main(["verify", str(tmp_path / "export"), key]) == 1
        assert first.name in capsys.readouterr().err
    first.write_bytes(data)
    assert command.main(["verify", str(tmp_path / "export"), key]) == 0


def test_another_file_of_the_same_name_is_found(zone: LoggedZone, tmp_path: Path, key: str) -> None:
    """As of an attempt before: a partition is read again if its rows were not proven."""
    assert run("export", zone, tmp_path / "export", key) == 0
    place, secret = Target(str(tmp_path / "export")), ExportKey(bytes(range(32)))
    manifest = whole(tmp_path / "export")
    part = manifest.partitions[0]
    cipher = cipher_of(place, manifest, secret)
    assert cipher is not None
    before = list(read_part(place, part, cipher))[1:]
    rows = [(row.key, row.counter, row.term, row.expires_at, row.value) for row in before]
    with (
        (tmp_path / "export" / part.file).open("wb") as file,
        PartWriter(file, 0, cipher.properties_to_write(part.file)) as writer,
    ):
        writer.add(RowColumns.of_rows(rows, values=True))

    with pytest.raises(TargetRefused, match="has other rows than its manifest") as refused:
        verify(place, lambda done, total: None, secret)

    assert part.digest not in str(refused.value)
    assert writer.content.hex not in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", 39),
        ("export_id", "00112233"),
        ("series", "another"),
        ("zone.uid", "another"),
        ("zone.partitions", 1),
        ("encryption.salt", "00" * 16),
        ("started_at", "2020-01-01T00:00:00.000+00:00"),
    ],
)
def test_a_manifest_that_was_changed_is_found(
    zone: LoggedZone, tmp_path: Path, key: str, capsys: Captured, field: str, value: object
) -> None:
    assert run("export", zone, tmp_path / "export", key) == 0
    path = tmp_path / "export" / MANIFEST
    told = json.loads(path.read_bytes())
    *into, name = field.split(".")
    inner = told[into[0]] if into else told
    assert inner[name] != value
    inner[name] = value
    path.write_text(json.dumps(told))

    assert command.main(["verify", str(tmp_path / "export"), key]) == 1
    assert f"{MANIFEST} was changed" in capsys.readouterr().err


def test_a_manifest_of_another_export_is_found(zone: LoggedZone, tmp_path: Path, key: str) -> None:
    """Its seal is opened by its own salt and id alone, and those are the other's."""
    for each in ("export", "other"):
        assert run("export", zone, tmp_path / each, key) == 0
    told, other = (
        json.loads((tmp_path / at / MANIFEST).read_bytes()) for at in ("export", "other")
    )

    told["encryption"]["sealed"] = other["encryption"]["sealed"]
    (tmp_path / "export" / MANIFEST).write_text(json.dumps(told))

    with pytest.raises(TargetRefused, match="does not decrypt"):
        whole(tmp_path / "export")
    cipher = Cipher(
        ExportKey(bytes(range(32))), other["export_id"], bytes.fromhex(other["encryption"]["salt"])
    )
    sealed = json.loads(unsealed(other["encryption"]["sealed"], cipher))
    assert sealed["digest"]
    assert len(sealed["partitions"]) == 2


def test_an_encrypted_export_cannot_be_made_to_look_clear(
    zone: LoggedZone, tmp_path: Path, key: str
) -> None:
    assert run("export", zone, tmp_path / "export", key) == 0
    assert run("export", zone, tmp_path / "clear") == 0
    path, place = tmp_path / "export" / MANIFEST, Target(str(tmp_path / "export"))
    told = json.loads(path.read_bytes())

    for changes in ({"encryption": None}, {"encryption": None, "format": 1}, {"format": 1}):
        path.write_text(json.dumps({**told, **changes}))
        with pytest.raises(TargetRefused, match="contradicts itself"):
            read_manifest(place)
    path.write_bytes((tmp_path / "clear" / MANIFEST).read_bytes())
    with pytest.raises(KeyRefused, match="is not encrypted"):
        whole(tmp_path / "export")


@pytest.mark.parametrize("error", [OSError(), ValueError(" "), ValueError("\n")])
def test_an_error_without_words_is_told_by_its_type(
    zone: LoggedZone,
    tmp_path: Path,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    error: Exception,
) -> None:
    def fail(*given: object, **more: object) -> None:
        raise error

    target = tmp_path / "export"
    assert run("export", zone, target, key) == 0
    monkeypatch.setattr(pq, "ParquetFile" if isinstance(error, ValueError) else "read_table", fail)

    assert command.main(["verify", str(target), key]) == 1
    assert type(error).__name__ in capsys.readouterr().err


class _OfBuildsBefore(msgspec.Struct):
    """The manifest as builds without encryption decode it, before they look at the format."""

    format: int
    export_id: str
    zone: dict[str, Any]
    started_at: str
    ended_at: str
    rows: int
    bytes: int
    digest: str
    partitions: tuple[dict[str, Any], ...]
    run: str = ""
    series: str = ""


def test_builds_before_refuse_it_by_its_format(zone: LoggedZone, tmp_path: Path, key: str) -> None:
    assert run("export", zone, tmp_path / "export", key) == 0
    assert run("export", zone, tmp_path / "clear") == 0

    encrypted, clear = (
        msgspec.json.decode((tmp_path / at / MANIFEST).read_bytes(), type=_OfBuildsBefore)
        for at in ("export", "clear")
    )

    assert (encrypted.format, encrypted.partitions, clear.format) == (2, (), 1)


def test_a_pod_tells_no_digest_and_no_key_of_a_row(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, key: str, capsys: Captured
) -> None:
    """Its log and the status are read by people who may not have the key."""
    message, target = tmp_path / "message", tmp_path / "export"
    options = (key, "--json", f"--termination-message={message}")

    assert run("export", zone, target, "--verify", *options) == 0
    manifest, exported = whole(target), told_by(message)
    empty.put(unguessable(3), b"newer")
    assert run("import", empty, target, "--continue", *options) == 1
    failed = told_by(message)
    assert run("import", empty, target, "--continue", "--into-non-empty", *options) == 0
    imported = told_by(message)

    key_id = ExportKey(bytes(range(32))).id
    assert (exported.digest, exported.encryption_key_id, exported.rows) == ("", key_id, ROWS)
    assert (imported.digest, imported.encryption_key_id) == ("", key_id)
    assert failed.outcome is RunOutcome.FAILED
    out, err = capsys.readouterr()
    digests = [manifest.digest, *(part.digest for part in manifest.partitions)]
    for each in (*digests, KEY, bytes(range(32)).hex()):
        assert each not in out + err + repr((exported, failed, imported))
    assert manifest.export_id in out


def test_a_pod_that_imports_nothing_names_no_key_of_a_row(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, key: str, capsys: Captured
) -> None:
    """Neither one that the zone has, nor one that its primary refuses; others are told why."""
    message, pod = tmp_path / "message", f"--termination-message={tmp_path}/message"
    for target, options in ((tmp_path / "export", (key,)), (tmp_path / "clear", ())):
        assert run("export", zone, target, *options) == 0
    names_key: list[bool] = []

    def import_fails(code: int, *more: str) -> None:
        capsys.readouterr()
        for target, options in (
            ("export", (key, pod)),
            ("export", (key,)),
            ("clear", (pod,)),
        ):
            message.write_bytes(encode_export_result(ExportResult(RunOutcome.UNKNOWN)))
            assert run("import", empty, tmp_path / target, *options, *more) == code
            said = capsys.readouterr().err + told_by(message).reason
            assert "not empty" in said or "refuses rows" in said or "shy-key" in said
            names_key.append("shy-key" in said)

    empty.refuses = lambda ask: RowsRestored(problem="the value of b'shy-key' has 9 bytes")
    import_fails(1)
    empty.put(b"shy-key", b"value", 1_999_999_999_999)
    import_fails(2)
    import_fails(2, "--check")

    assert names_key == 3 * [False, True, True]


def test_an_export_of_a_schedule_is_deleted_without_its_key(
    zone: LoggedZone, tmp_path: Path, key: str
) -> None:
    """After the key was replaced, the older exports have another one than the new one."""
    for agent in zone.agents:
        agent.uid = "u"
    monday, tuesday = (tmp_path / f"nightly-2026010{day}T030000Z" for day in (5, 6))
    schedule = (
        "--zone-uid=u",
        "--series=s",
        "--verify",
        f"--termination-message={tmp_path}/message",
    )
    other = key_file(tmp_path / "other", OTHER)
    assert run("export", zone, monday, key, *schedule) == 0

    assert run("export", zone, tuesday, other, *schedule, f"--delete={monday.name}") == 0

    assert told_by(tmp_path / "message").deleted == (monday.name,)
    assert not monday.exists()


def test_an_interrupted_import_goes_on(
    zone: LoggedZone, empty: LoggedZone, tmp_path: Path, key: str
) -> None:
    assert run("export", zone, tmp_path / "export", key) == 0
    for number in range(ROWS // 2):
        empty.put(unguessable(number), unguessable(-number - 1), 1_999_999_999_999)

    assert run("import", empty, tmp_path / "export", key) == 2
    assert run("import", empty, tmp_path / "export", key, "--continue") == 0

    assert empty.rows() == zone.rows()
