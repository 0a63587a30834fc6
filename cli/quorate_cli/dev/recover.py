"""`quorate dev recover`: rebuilds a lost metastore from what the agents store."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from quorate.protocol.status import ZoneStatus
from quorate_cli.dev.copied_folder import check_no_copy_runs
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.dev.membership import HOST, POLL_S
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import ClusterState
from quorate_cli.processes.cluster_folder import OPERATOR
from quorate_cli.processes.process import python, run
from quorate_cli.terminal.problem import Problem

ASK_S = 60.0
HEARD_S = 15.0
"""Seconds to wait for zones once the operator leads again."""
START = "`quorate dev start operator` starts it"
AS_IT_WAS = f"the operator is stopped: {START} as it was"


def recover_metastore(cluster: DevCluster) -> list[str]:
    """Rebuild the operator's file; return sentences on what was done and what is still missing."""
    with cluster.folder.locked():  # else another command could start the operator in between
        said = _rebuild(cluster)
    try:
        return said + _zones(cluster)
    except Problem as problem:
        raise Problem("; ".join([*said, str(problem)])) from problem


def _rebuild(cluster: DevCluster) -> list[str]:
    entry = cluster.folder.read()
    check_no_copy_runs(cluster.folder, entry)
    cluster.folder.made_secret(entry.cluster)
    data = cluster.folder.data(OPERATOR)
    unsure = (
        "the operator is stopped, and whether its file was replaced is unknown: an old one would be"
        f" in {data}/set-aside-N; run `quorate dev recover` again"
    )
    with _told_if_interrupted(AS_IT_WAS):
        if cluster.folder.process(OPERATOR) is not None:
            cluster.stop(OPERATOR)
        said = _start_agents(cluster)
    entry = cluster.folder.read()
    addresses = [f"{HOST}:{agent.peer_port}" for agent in entry.agents if agent.peer_port]
    command = python(
        *("quorate_operator", "recover", "--data", str(data), "--cluster", entry.cluster),
        *("--secrets", str(cluster.folder.secrets), "--agents", ",".join(addresses)),
    )
    with _told_if_interrupted(unsure):
        try:
            said += _output(command, unsure)
        except Problem as problem:
            raise Problem("; ".join([*said, str(problem)])) from problem
    with _told_if_interrupted("the operator's file is replaced: " + START):
        cluster.start(OPERATOR)
    return said


@contextmanager
def _told_if_interrupted(sentence: str) -> Iterator[None]:
    """Print the sentence if this command is ended by a signal."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        with suppress(OSError):  # the terminal may be gone
            print(f"quorate: {sentence}", file=sys.stderr)
        raise


def _start_agents(cluster: DevCluster) -> list[str]:
    """Start the agents that do not run; return a sentence for each that refuses."""
    said: list[str] = []
    for agent in cluster.folder.read().agents:
        if cluster.folder.process(agent.name) is None:
            try:
                cluster.start_agent(agent.name)
            except Problem as problem:  # what the others have may be enough
                said.append(f"{agent.name} is not running; its data counts once it runs: {problem}")
    return said


def _output(command: list[str], unsure: str) -> list[str]:
    """Return the lines that the command prints.

    Raises Problem if it fails; with the sentence `unsure` if it was killed, or took too long.
    """
    late = f"it was not done within {ASK_S:g} s: `quorate dev status` shows which agents run"
    done = run(command, ASK_S, f"{late}; {unsure}")
    if done.returncode < 0:
        raise Problem(f"its process was ended by signal {-done.returncode}; {unsure}")
    if done.returncode != 0:
        why = done.stderr.strip().removeprefix("quorate-operator: ")
        raise Problem(f"{why}; {AS_IT_WAS}")
    return done.stdout.splitlines()


def _zones(cluster: DevCluster) -> list[str]:
    """Return the state of each zone, once the running agents have told theirs.

    Raises Problem if there is none, and not all agents could tell.
    """
    deadline = time.monotonic() + HEARD_S
    zones: tuple[ZoneStatus, ...] = ()
    while True:
        try:
            state = cluster.state()
            zones, unknown = state.zones, _unknown(cluster, state)
            declared = len(resources.fetch_all(cluster.api(), resources.ZONE))
            if zones and declared == len(zones) and not any(zone.unavailable for zone in zones):
                break
        except Problem as problem:  # the operator may not have heard of the cluster yet
            unknown = str(problem)
        if time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    if zones:
        return [f"zone {zone.name}: {zone.sentence}" for zone in zones]
    if unknown:
        raise Problem(
            f"what data agents have is not known yet: {unknown}; `quorate status` shows the zones"
            " once it is"
        )
    return ["no agent has data of a zone"]


def _unknown(cluster: DevCluster, state: ClusterState) -> str:
    """Return why the data of some agents is not known; empty: all are online."""
    if state.problem:
        return state.problem
    online = {node.name for node in state.nodes if node.online}
    away = [agent.name for agent in cluster.folder.read().agents if agent.name not in online]
    return f"{', '.join(away)} is not online" if away else ""
