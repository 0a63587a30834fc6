"""`quorate dev down --delete-data` on a cluster whose processes do not run."""

from pathlib import Path

import pytest

from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.processes.cluster_folder import FORMAT_VERSION, ClusterEntry, ClusterFolder
from quorate_cli.terminal.problem import Problem


def test_no_other_command_uses_a_folder_that_is_being_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = ClusterFolder(tmp_path / "cluster")
    folder.path.mkdir()
    folder.write(ClusterEntry(FORMAT_VERSION, "main", (), 1, 7000, False))
    delete, said = ClusterFolder.delete, []

    def deleting(of: ClusterFolder) -> None:
        with pytest.raises(Problem) as refused:
            DevCluster(ClusterFolder(folder.path), print).up()
        said.append(str(refused.value))
        delete(of)

    monkeypatch.setattr(ClusterFolder, "delete", deleting)
    DevCluster(folder, print).down(delete_data=True)

    assert [each for each in said if "another `quorate dev` command is using it" in each] == said
    assert said
    assert not folder.path.exists()
