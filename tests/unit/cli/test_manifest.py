"""What a user's files declare, and what is said of those that declare it wrongly."""

from pathlib import Path

import pytest

from quorate_cli.manifest import parse_manifests, read_manifests
from quorate_cli.problem import Problem
from quorate_cli.resources import STORAGE_CLUSTER, ZONE, find_kind

ROOT = Path(__file__).parents[3]
GOOD = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: books}
spec: {clusterRef: {name: main}, partitions: 64, replicas: 3}
"""


@pytest.mark.parametrize("example", ["zone.yaml", "cluster.yaml"])
def test_the_examples_may_be_declared(example: str) -> None:
    (manifest,) = read_manifests([ROOT / "examples" / example])

    manifest.check()


def test_several_documents_in_one_file_keep_their_order() -> None:
    first, second = parse_manifests(f"{GOOD}---\n---\n{GOOD.replace('books', 'maps')}", "f.yaml")

    assert (first.name, second.name) == ("books", "maps")
    assert second.place == "f.yaml, document 2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1,", "f.yaml, line 1: not YAML"),
        ("just words", "f.yaml: 'just words' is not an object"),
        (
            GOOD.replace("v1alpha1", "v2"),
            "apiVersion is 'quorate.io/v2': write quorate.io/v1alpha1",
        ),
        (GOOD.replace("Zone", "Pod"), "kind is 'Pod': write StorageCluster or Zone"),
        (GOOD.replace("books", ""), "metadata.name is None: give the zone a name"),
        (GOOD.replace("{name: books}", "books"), "metadata.name is None: give the zone a name"),
    ],
)
def test_what_is_no_manifest_is_a_sentence(text: str, said: str) -> None:
    with pytest.raises(Problem) as raised:
        parse_manifests(text, "f.yaml")

    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("partitions: 64", "partitions: 100", "spec.partitions is 100: write a power of two"),
        ("replicas: 3", "replica: 3", "spec.replica is not a known field: did you mean replicas?"),
        ("replicas: 3", "replicas: 9", "spec.replicas is 9"),
    ],
)
def test_a_manifest_that_may_not_be_names_the_field_and_the_way_out(
    old: str, new: str, said: str
) -> None:
    (manifest,) = parse_manifests(GOOD.replace(old, new), "f.yaml")

    with pytest.raises(Problem) as raised:
        manifest.check()

    assert str(raised.value).startswith("f.yaml: Zone books: ")
    assert said in str(raised.value)


def test_a_field_that_never_changes_is_compared_with_what_is_declared() -> None:
    (before,) = parse_manifests(GOOD, "f.yaml")
    (after,) = parse_manifests(GOOD.replace("64", "128"), "f.yaml")

    with pytest.raises(Problem, match="partitions cannot be changed"):
        after.check(before.body)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"none\.yaml cannot be read: no such file"):
        read_manifests([tmp_path / "none.yaml"])
    (tmp_path / "empty.yaml").touch()
    with pytest.raises(Problem, match="nothing is declared there"):
        read_manifests([tmp_path / "empty.yaml"])
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Problem, match="is not text in UTF-8"):
        read_manifests([tmp_path / "binary"])


@pytest.mark.parametrize("text", ["zone", "zones", "zn", "Zone", "ZN"])
def test_a_kind_has_many_names(text: str) -> None:
    assert find_kind(text) == ZONE


def test_an_unknown_kind_lists_those_that_are() -> None:
    assert find_kind("stc") == STORAGE_CLUSTER
    with pytest.raises(Problem, match=r"kind 'pods' is not known: write one of storageclusters"):
        find_kind("pods")
