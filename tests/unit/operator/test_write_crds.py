"""The files in crds/ are the ones that the models make."""

from pathlib import Path

from quorate_operator.kube.write_crds import crd_files, differences, write_crds

CRDS = Path(__file__).parents[3] / "crds"


def test_the_files_are_up_to_date() -> None:
    assert differences(CRDS, crd_files()) == [], "run make crds"


def test_missing_changed_and_superfluous_files_are_found_and_mended(tmp_path: Path) -> None:
    write_crds(tmp_path, crd_files())
    (tmp_path / "zones.yaml").write_text("changed")
    (tmp_path / "storagenodes.yaml").unlink()
    (tmp_path / "pools.yaml").write_text("superfluous")

    assert differences(tmp_path, crd_files()) == ["pools.yaml", "storagenodes.yaml", "zones.yaml"]

    write_crds(tmp_path, crd_files())
    assert differences(tmp_path, crd_files()) == []
