"""Where a development cluster's agents listen for clients."""

import socket
from pathlib import Path

import pytest

from quorate_cli.dev import dev_cluster, ports
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.processes.cluster_folder import ClusterFolder
from quorate_control_plane.ports import free_ports


def test_another_clusters_neighbourhood_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent on 7000 may be down just now: that port is not ours."""
    taken = {7001, 7002, 7115}
    monkeypatch.setattr(ports, "is_free", lambda port: port not in taken)
    assert ports.choose_client_port_base() == 7200


def test_a_program_further_up_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port != 7070)
    assert ports.choose_client_port_base() == 7000


def test_on_a_machine_without_free_ports_it_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    assert ports.choose_client_port_base() == 7000


def test_it_is_said_which_port_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port != 7002)
    told: list[str] = []
    cluster = DevCluster(ClusterFolder(tmp_path / ".quorate"), told.append)

    cluster._make_or_read(None, None, None, None)

    (said,) = told
    assert said.startswith("port 7002 is taken, probably by another cluster")
    assert said.endswith("the client ports of this cluster begin at 7100")


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    port = next(free_ports())
    with socket.create_server(("127.0.0.1", port)):
        assert not ports.is_free(port)
    assert ports.is_free(port)


@pytest.mark.parametrize(("given", "noted"), [(None, 7300), (9000, 9000)])
def test_a_new_cluster_notes_the_ports_it_was_given_or_chose(
    given: int | None, noted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dev_cluster, "choose_client_port_base", lambda: 7300)
    folder = ClusterFolder(tmp_path / ".quorate")

    DevCluster(folder, print)._make_or_read(None, None, given, None)

    assert folder.read().client_port_base == noted
