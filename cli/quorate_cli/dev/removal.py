"""Removal of an agent: checks that others have all that it has, and waits until they do."""

import time
from collections.abc import Callable

from quorate_cli.dev.membership import POLL_S, Cluster
from quorate_cli.objects.operator_api import OperatorApi
from quorate_cli.processes.cluster_folder import ClusterEntry
from quorate_cli.terminal.problem import Problem


def is_registered(cluster: Cluster, entry: ClusterEntry, name: str) -> bool:
    """Return whether the agent is registered.

    Raises Problem if it may have data that nobody would move away: the operator's database was
    lost, or is older than the agent or a zone, or the agent was away when a zone was deleted.
    """
    state = cluster.state()
    kept = {each.name for each in cluster.folder.data(name).glob("zones/*")}
    if unknown := kept - {zone.uid for zone in state.zones}:
        raise Problem(
            f"{name} has data of zones that the operator does not know"
            f" ({', '.join(sorted(unknown))}), and may be the only one: `quorate dev recover`"
            " declares them again. Delete those that are not needed, by `quorate delete zone"
            " NAME`: first compare this id with metadata.uid in `quorate get zone NAME -o yaml`"
            f" (several may have one name). Then remove {name}"
        )
    if state.node(name) is not None:
        return True
    is_forgotten = any(agent.forgotten for agent in entry.agents if agent.name == name)
    if kept and not is_forgotten:
        raise Problem(
            f"{name} is not registered, so nobody knows what only it has: start it with"
            f" `quorate dev start {name}`, and remove it when `quorate status` shows it"
        )
    return False


def wait_until_drained(
    cluster: Cluster, name: str, deadline: float, progress: Callable[[int, int], None]
) -> None:
    """Wait until the agent has no copies; tell `progress` how many there were and are.

    Raises Problem at `deadline`.
    """
    at_first: int | None = None
    while True:
        node = cluster.state().node(name)
        left = node.owners if node is not None else 0
        at_first = left if at_first is None else at_first
        progress(at_first, left)
        if left == 0:
            return
        if time.monotonic() > deadline:
            raise Problem(
                f"{name} still has {left} copies and stays a member: `quorate status` shows the"
                " reason; give it more time with --timeout"
            )
        time.sleep(POLL_S * 4)


def wait_until_forgotten(api: OperatorApi, path: str, name: str, deadline: float) -> None:
    """Wait until the operator lets the agent be forgotten.

    A lost agent owns nothing, but may have what no other agent has.
    """
    while True:
        try:
            api.delete(path)
        except Problem as problem:
            if time.monotonic() > deadline:
                raise Problem(
                    f"{problem}; {name} is not running and stays a member: start it with"
                    f" `quorate dev start {name}`, or add an agent that can take its copies"
                ) from problem
            time.sleep(POLL_S * 4)
        else:
            return
