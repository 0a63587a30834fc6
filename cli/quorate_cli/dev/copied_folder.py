"""Recognizes a folder that was copied from another one whose processes run.

Both folders are the same cluster: the same secret, agents of the same names, the same ports.  An
operator started in one of them would lead the agents of the other.  A folder that was only moved
is used as before.
"""

from pathlib import Path

from quorate_cli.copies.agent_question import Asked, is_of_our_cluster
from quorate_cli.dev.membership import HOST
from quorate_cli.dev.ports import is_free
from quorate_cli.processes.cluster_folder import OPERATOR, ClusterEntry, ClusterFolder
from quorate_cli.processes.process import Started, is_alive, read_started
from quorate_cli.terminal.problem import Problem


def check_no_copy_runs(folder: ClusterFolder, entry: ClusterEntry) -> None:
    """Raise Problem if processes run that belong to a copy or to the original of `folder`."""
    names = [OPERATOR, *(agent.name for agent in entry.agents)]
    for path in _earlier_places(folder, entry, names):
        running = _running_from(path, folder, entry, names)
        if running:
            raise Problem(
                f"folder {folder.path} is a copy of {path}, whose processes run"
                f" ({', '.join(running)}): both are the same cluster, and only one of them can run:"
                f" stop those first, with `quorate dev down --folder {path}`"
            )
    addresses = [folder.agent_address(agent.name) for agent in entry.agents]
    ours = {address.peer_port for address in addresses if address is not None}
    for agent in entry.agents:
        if folder.process(agent.name) is not None or agent.peer_port in ours:
            continue
        if is_free(agent.peer_port):
            continue
        secret = folder.secret_file(entry.cluster)
        if is_of_our_cluster(Asked(HOST, agent.peer_port, entry.cluster, agent.name, secret)):
            raise Problem(
                f"an agent of a copy of folder {folder.path}, or of the folder that it was copied"
                f" from, listens on port {agent.peer_port} of {agent.name}: both are the same"
                " cluster, and only one of them can run: stop the other one first, with `quorate"
                " dev down --folder FOLDER`"
            )


def _earlier_places(folder: ClusterFolder, entry: ClusterEntry, names: list[str]) -> list[str]:
    """Return the other folders in which this cluster was started, as far as this one tells."""
    noted = [entry.path]
    for name in names:
        started = read_started(folder.pid_file(name))
        noted.append(started.folder if started is not None else "")
    others = sorted({path for path in noted if path and path != str(folder.path)})
    return [path for path in others if not _is_same_folder(Path(path), folder.path)]


def _running_from(
    path: str, folder: ClusterFolder, entry: ClusterEntry, names: list[str]
) -> list[str]:
    """Return the processes of this cluster that were started in `path`."""
    original = ClusterFolder(Path(path))
    if _has_other_secret(original, folder, entry.cluster):
        return []  # this folder was moved, and another cluster was made in its place
    found = []
    for name in names:
        if folder.process(name) is not None:  # moved while it runs
            continue
        process = _process_in(original, name)
        noted = read_started(folder.pid_file(name))
        if process is None and noted is not None and noted.folder == path and is_alive(noted):
            process = noted
        if process is not None:
            found.append(f"{name}: process {process.pid}")
    return found


def _process_in(original: ClusterFolder, name: str) -> Started | None:
    try:
        return original.process(name)
    except OSError:
        return None  # a place that cannot be read; the ports are asked as well


def _has_other_secret(original: ClusterFolder, folder: ClusterFolder, cluster: str) -> bool:
    try:
        there = original.secret_file(cluster).read_bytes()
        return there != folder.secret_file(cluster).read_bytes()
    except OSError:
        return False


def _is_same_folder(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False
