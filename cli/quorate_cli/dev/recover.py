"""`quorate dev recover`: rebuilds a lost metastore from what the agents store."""

import time
from contextlib import suppress

from quorate.protocol.status import ZoneStatus
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.dev.membership import HOST, POLL_S
from quorate_cli.objects import resources
from quorate_cli.processes.cluster_folder import OPERATOR
from quorate_cli.processes.process import python, run
from quorate_cli.terminal.problem import Problem

ASK_S = 60.0
HEARD_S = 15.0
"""Seconds to wait for zones once the operator leads again."""


def recover_metastore(cluster: DevCluster) -> list[str]:
    """Rebuild the operator's file; return sentences on what was done and what is still missing."""
    with cluster.folder.locked():  # else another command could start the operator in between
        said = _rebuild(cluster)
    return said + _zones(cluster)


def _rebuild(cluster: DevCluster) -> list[str]:
    entry = cluster.folder.read()
    if cluster.folder.process(OPERATOR) is not None:
        cluster.stop(OPERATOR)
    said: list[str] = []
    for agent in entry.agents:
        if cluster.folder.process(agent.name) is None:
            try:
                cluster.start_agent(agent.name)
            except Problem as problem:  # what the others have may be enough
                said.append(f"{agent.name} is not running; its data counts once it runs: {problem}")
    addresses = [f"{HOST}:{a.peer_port}" for a in cluster.folder.read().agents if a.peer_port]
    data = cluster.folder.data(OPERATOR)
    command = python(
        *("quorate_operator", "recover", "--data", str(data), "--cluster", entry.cluster),
        *("--secrets", str(cluster.folder.secrets), "--agents", ",".join(addresses)),
    )
    try:
        said += _output(command)
    except Problem as problem:
        stopped = "the operator is stopped: `quorate dev start operator` starts it as it was"
        raise Problem("; ".join([str(problem), *said, stopped])) from problem
    cluster.start(OPERATOR)
    return said


def _output(command: list[str]) -> list[str]:
    """Return the lines that the command prints.  Raises Problem if it fails or takes too long."""
    late = (
        f"the agents were not asked within {ASK_S:g} s: `quorate dev status` shows which run;"
        " then run `quorate dev recover` again"
    )
    done = run(command, ASK_S, late)
    if done.returncode != 0:
        raise Problem(done.stderr.strip().removeprefix("quorate-operator: "))
    return done.stdout.splitlines()


def _zones(cluster: DevCluster) -> list[str]:
    """Return the state of each zone, once the running agents have told theirs."""
    deadline = time.monotonic() + HEARD_S
    zones: tuple[ZoneStatus, ...] = ()
    while time.monotonic() < deadline:
        with suppress(Problem):  # the operator may not have heard of the cluster yet
            zones = cluster.state().zones
            declared = len(resources.fetch_all(cluster.api(), resources.ZONE))
            if zones and declared == len(zones) and not any(zone.unavailable for zone in zones):
                break
        time.sleep(POLL_S)
    if not zones:
        return ["no agent has data of a zone"]
    return [f"zone {zone.name}: {zone.sentence}" for zone in zones]
