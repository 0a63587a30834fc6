"""The cluster's secret: drawn once, its owner's alone, refused with the way out."""

import stat
import threading
from pathlib import Path

import pytest

from quorate.protocol.messages.message import ROLES
from quorate_link.secret import (
    ClusterSecret,
    SecretRefused,
    draw_secret,
    make_secret,
    parse_secret,
    read_secret,
    write_private,
)

KEY = "0123456789abcdef" * 4


def test_a_secret_is_made_once_and_its_owner_alone_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "secrets" / "main.json"

    made = make_secret(file)

    assert make_secret(file) == read_secret(file) == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(file.parent.iterdir()) == [file]
    assert len(made.key) == 32
    assert KEY not in repr(ClusterSecret("c", bytes.fromhex(KEY)).keys())


def test_of_many_that_make_it_at_once_all_get_the_same(tmp_path: Path) -> None:
    file = tmp_path / "main.json"
    found: list[ClusterSecret] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        found.append(make_secret(file))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len({(each.cluster_id, each.key) for each in found}) == 1
    assert list(tmp_path.iterdir()) == [file]


def test_each_role_has_a_key_of_its_own_that_depends_on_the_cluster() -> None:
    secret = draw_secret()
    keys = secret.keys()

    assert sorted(keys.by_role) == sorted(ROLES)
    assert len({secret.key, *keys.by_role.values()}) == 4
    assert secret.keys("tool").by_role == {"tool": keys.by_role["tool"]}
    other = ClusterSecret("other", secret.key).keys()
    assert not {*other.by_role.values()} & {*keys.by_role.values()}


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "main.json"
    make_secret(file)
    file.chmod(0o640)

    with pytest.raises(SecretRefused, match=r"mode 0640 lets others read .* Way out: chmod 600"):
        read_secret(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a secret's file"),
        ("[1]", "not a secret's file"),
        ("{}", "clusterId is missing"),
        (f'{{"clusterId": "", "key": "{KEY}"}}', "clusterId is not well-formed"),
        (f'{{"clusterId": "a b", "key": "{KEY}"}}', "clusterId is not well-formed"),
        ('{"clusterId": "a"}', "key is missing"),
        ('{"clusterId": "a", "key": "abc"}', "key is not well-formed, 64 digits"),
        (f'{{"clusterId": "a", "key": "{KEY.upper()}"}}', "key is not well-formed"),
    ],
)
def test_what_is_no_secret_is_refused_by_its_field(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "main.json"
    write_private(file, text)

    with pytest.raises(SecretRefused, match=said) as refused:
        read_secret(file)
    assert str(file) in str(refused.value)
    assert "Way out: " in str(refused.value)
    assert KEY not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretRefused, match=r"none.json cannot be read: No such file"):
        read_secret(tmp_path / "none.json")


def test_a_mounted_secret_is_a_folder_of_two_files(tmp_path: Path) -> None:
    (tmp_path / "clusterId").write_text("main-1\n")
    (tmp_path / "key").write_text(KEY)

    assert read_secret(tmp_path) == ClusterSecret("main-1", bytes.fromhex(KEY))
    assert parse_secret("here", "main-1", KEY).texts() == {"clusterId": "main-1", "key": KEY}
    (tmp_path / "key").unlink()
    with pytest.raises(SecretRefused, match="cannot be read"):
        read_secret(tmp_path)


def test_where_none_can_be_made_the_way_out_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(SecretRefused, match=r"cannot be written: .* Way out: make room or mend"):
        make_secret(tmp_path / "file" / "main.json")
