"""Arguments of a Job's pod, as a process of this machine has them."""

from pathlib import Path

from quorate_cluster.job_pods import as_here
from quorate_operator.jobs.job import WORK


def test_folders_are_those_of_this_machine_and_the_port_is_nobodys() -> None:
    folders = {WORK: Path("/here/folder"), "/secret": Path("/here/secret.env")}

    def found(argument: str) -> str:
        return as_here(argument, folders)

    assert found(f"--spill={WORK}/spill") == "--spill=/here/folder/spill"
    assert found("--secret=/secret") == "--secret=/here/secret.env"
    assert found(f"--spill={WORK}shop") == f"--spill={WORK}shop"
    assert found("--progress-port=8080") == "--progress-port=0"
    assert found("--zone=library") == "--zone=library"
