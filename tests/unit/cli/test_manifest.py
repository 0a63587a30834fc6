"""What a user's files declare, and what is said of those that declare it wrongly."""

from pathlib import Path

import pytest

from quorate_cli.objects.manifest import parse_manifests, read_manifests
from quorate_cli.objects.resources import STORAGE_CLUSTER, ZONE, find_kind
from quorate_cli.terminal.problem import Problem

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

    manifest.kind.model.parse(manifest.body)


def test_several_documents_in_one_file_keep_their_order() -> None:
    first, second = parse_manifests(f"{GOOD}---\n---\n{GOOD.replace('books', 'maps')}", "f.yaml")

    assert (first.name, second.name) == ("books", "maps")
    assert second.place == "f.yaml, document 2"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1,", "f.yaml, line 1: not YAML"),
        (
            GOOD.replace("{name: books}", "{name: books, annotations: {d: 2024-02-30}}"),
            "f.yaml: a value cannot be read: ",
        ),
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


def test_an_object_that_is_declared_twice_is_named_with_both_places(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(GOOD)
    second.write_text(f"{GOOD.replace('books', 'maps')}---\n{GOOD}")

    with pytest.raises(Problem) as raised:
        read_manifests([first, second])

    said = f"{second}, document 2: zone 'books' is declared in {first} already: leave one of them"
    assert said in str(raised.value)
    cluster = GOOD.replace("Zone", "StorageCluster")
    second.write_text(cluster)
    assert len(read_manifests([first, second])) == 2  # of different kinds


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(Problem, match=r"none\.yaml cannot be read: no such file"):
        read_manifests([tmp_path / "none.yaml"])
    (tmp_path / "empty.yaml").touch()
    with pytest.raises(Problem, match="there are no objects in it"):
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
