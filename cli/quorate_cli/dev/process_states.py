"""The processes of a development cluster: which run, where they listen, why the others do not."""

from typing import NamedTuple

from quorate.facts.addresses import join_address
from quorate_cli.dev.membership import HOST
from quorate_cli.processes.cluster_folder import OPERATOR, ClusterFolder
from quorate_cli.processes.last_words import last_error, last_words
from quorate_cli.processes.process import read_started


class ProcessState(NamedTuple):
    """One process.

    `listens`: purpose -> host:port.  `reason`: why it ended, if no command has ended it; else
    empty.
    """

    name: str
    pid: int | None
    listens: dict[str, str]
    reason: str


def process_states(folder: ClusterFolder) -> list[ProcessState]:
    """Return all processes of the cluster, the operator first."""
    names = [OPERATOR, *(agent.name for agent in folder.read().agents)]
    return [_state(folder, name) for name in names]


def not_running(folder: ClusterFolder) -> list[str]:
    """Return one sentence for each process that does not run: why, or how to start it."""
    return [
        f"{state.name} is not running: "
        + (state.reason or f"start it with `quorate dev start {state.name}`")
        for state in process_states(folder)
        if state.pid is None
    ]


def stop_reason(folder: ClusterFolder, name: str) -> str:
    """Return why a process ended that no command has ended; empty if one has, and while it runs."""
    started = read_started(folder.pid_file(name))  # removed by the command that ends the process
    if started is None or folder.process(name) is not None:
        return ""
    log = folder.log(name)
    said = last_error(log, started.log_begin)
    return said or (
        f"it ended without logging an error, so it was probably killed; `quorate dev start {name}`"
        f" starts it again (log: {log})"
    )


def last_words_of(folder: ClusterFolder, name: str) -> str:
    """Return the last message of the process, and where its log is."""
    started = read_started(folder.pid_file(name))
    return last_words(folder.log(name), started.log_begin if started is not None else 0)


def _state(folder: ClusterFolder, name: str) -> ProcessState:
    process = folder.process(name)
    pid = process.pid if process is not None else None
    return ProcessState(name, pid, _listens(folder, name), stop_reason(folder, name))


def _listens(folder: ClusterFolder, name: str) -> dict[str, str]:
    if name == OPERATOR:
        operator = folder.operator_address()
        return {"API": f"{HOST}:{operator.api_port}"} if operator is not None else {}
    agent = folder.agent_address(name)
    if agent is None:
        return {}
    return {
        "peers": join_address(agent.host, agent.peer_port),
        "admin": f"{HOST}:{agent.admin_port}",
    }
