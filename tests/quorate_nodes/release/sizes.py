"""Another number of agents, and the volumes of those that have left made free again."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from quorate_nodes.release.installed import CLUSTER, ZONE, Installed
from quorate_nodes.volumes import claim_of, clean, volume_of

THREE = [f"agent-{number}" for number in (1, 2, 3)]
MORE = [f"agent-{number}" for number in (4, 5, 6)]


def scale(installed: Installed, agents: int) -> None:
    """`kubectl scale`, as a user does."""
    installed.kubectl("scale", "storagecluster", CLUSTER, f"--replicas={agents}")


def wait_size(installed: Installed, agents: int) -> None:
    """Until so many agents hold everything, with even primaries, and the others have left."""

    def is_so() -> bool:
        primaries = installed.primaries()
        return (
            len(primaries) == agents
            and max(primaries) - min(primaries) <= 1
            and installed.is_whole(agents)
        )

    installed.wait(is_so, f"{agents} agents with even primaries", 150)


@contextmanager
def zone_timer(installed: Installed, field: str, seconds: int) -> Iterator[None]:
    """The zone's timer of this name takes so long, and in the end as long as before."""
    before = installed.zone(ZONE)["spec"].get(field)

    def patch(value: int | str | None) -> None:
        spec = json.dumps({"spec": {field: value}})
        installed.kubectl("patch", "zone", ZONE, "--type=merge", f"--patch={spec}")

    patch(seconds)
    try:
        yield
    finally:
        patch(before)


@contextmanager
def three_in_the_end(installed: Installed) -> Iterator[None]:
    """Then there are the first three agents again, and nobody has the volumes of the others."""
    try:
        yield
    finally:
        if agents_of(installed) == THREE:
            _leave(installed, 3)
        else:  # which agents leave depends on what each of them holds
            scale(installed, 6)
            wait_size(installed, 6)
            _drain(installed, MORE)
            _leave(installed, 3)
            _drain(installed, [])
        for agent in MORE:
            _free(installed, agent)


def agents_of(installed: Installed) -> list[str]:
    """The names of the agents that have a pod."""
    return [pod["metadata"]["labels"]["quorate.io/agent"] for pod in installed.pods()]


def _leave(installed: Installed, agents: int) -> None:
    scale(installed, agents)
    wait_size(installed, agents)


def _drain(installed: Installed, agents: list[str]) -> None:
    patch = json.dumps({"spec": {"drainAgents": agents}})
    installed.kubectl("patch", "storagecluster", CLUSTER, "--type=merge", f"--patch={patch}")


def claims(installed: Installed, agents: list[str]) -> dict[str, str]:
    """agent -> uid of its claim; those without one are left out."""
    found = {agent: claim_of(installed, agent) for agent in agents}
    return {agent: each["metadata"]["uid"] for agent, each in found.items() if each}


def _free(installed: Installed, agent: str) -> None:
    """Delete the claim, and offer its volume empty to others."""
    volume = volume_of(installed, agent)
    if volume:
        installed.kubectl("delete", "pvc", f"{CLUSTER}-{agent}")
        clean(installed, volume)
