"""The output of commands with --json.  The keys are documented in docs/json.md and stay."""

from collections.abc import Sequence

import msgspec

from quorate_cli.dev.process_states import ProcessState, process_states
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.processes.cluster_folder import ClusterFolder


def status_json(states: Sequence[ClusterState], folder: ClusterFolder | None) -> str:
    """Return the JSON of `quorate status`: all clusters, and stopped processes of `folder`."""
    stopped = process_states(folder) if folder is not None else []
    return _json(
        {
            "clusters": states,
            "not_running": {each.name: each.reason for each in stopped if each.pid is None},
        }
    )


def dev_status_json(folder: ClusterFolder) -> str:
    """Return the JSON of `quorate dev status`: the processes of one folder."""
    entry = folder.read()
    return _json(
        {
            "cluster": entry.cluster,
            "folder": str(folder.path),
            "processes": [_process(folder, state) for state in process_states(folder)],
        }
    )


def _process(folder: ClusterFolder, state: ProcessState) -> dict[str, object]:
    return {
        "name": state.name,
        "pid": state.pid,
        "listens": {what.lower(): where for what, where in state.listens.items()},
        "log": str(folder.log(state.name)),
        "reason": state.reason,
    }


def _json(whole: object) -> str:
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()
