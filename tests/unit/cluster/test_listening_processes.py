"""A process listens where it wrote that it does, as long as it runs."""

from pathlib import Path

from quorate_cluster.processes import Listening


def test_what_does_not_run_does_not_listen_whatever_it_wrote(tmp_path: Path) -> None:
    (tmp_path / "agent-1").mkdir()
    (tmp_path / "agent-1" / "agent.json").write_text('{"pid": 1, "peer_port": 7000}')
    process = Listening("agent-1", tmp_path, "agent.json", ["true"], ())

    assert process.address() is None
