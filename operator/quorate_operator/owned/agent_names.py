"""The agents of a managed cluster, and those that leave when it is to have fewer."""

import re
from collections.abc import Collection
from typing import NamedTuple

from quorate.planning.disruption import AgentDisruption, Disruption

PEER_PORT = 7100
EXTERNAL_PORT_OFFSET = 1000
"""Behind its client port each zone has the one for clients outside of the Kubernetes cluster."""
_NAME = re.compile(r"^agent-([1-9][0-9]{0,3})$")
_NOTHING = AgentDisruption("", 0, 0, False)


class Agents(NamedTuple):
    """`staying` and `leaving` are names; those that leave are drained, then removed.  `run` is
    False for a cluster that is scaled to 0: its pods end, its data stays."""

    staying: tuple[str, ...]
    leaving: tuple[str, ...]
    run: bool


def choose_agents(replicas: int, known: Collection[str], disruption: Disruption) -> Agents:
    """`known`: agents that have a StatefulSet or are registered; names of others are ignored.

    More agents get the lowest free numbers, so that claims of before are used again.  Of too many
    those leave that hold nothing and never took part, or are on their way already, then those with
    the fewest copies and primaries, then those with the highest numbers.
    """
    numbers = sorted(number for number in map(_number, known) if number)
    if not replicas:
        return Agents(tuple(map(_name, numbers)), (), run=False)
    free = (n for n in range(1, replicas + len(numbers) + 1) if n not in numbers)
    while len(numbers) < replicas:
        numbers.append(next(free))
    about = {each.name: each for each in disruption.agents}

    def cost(number: int) -> tuple[bool, int, int, int]:
        name = _name(number)
        agent = about.get(name, _NOTHING)
        is_in_use = name in about or name in disruption.protected
        return is_in_use and not agent.draining, agent.copies, agent.primaries, -number

    leaving = sorted(numbers, key=cost)[: len(numbers) - replicas]
    staying = sorted(number for number in numbers if number not in leaving)
    return Agents(tuple(map(_name, staying)), tuple(map(_name, leaving)), run=True)


def stateful_set_name(cluster: str, agent: str) -> str:
    """Name of the StatefulSet of one agent, and of its claim."""
    return f"{cluster}-{agent}"


def pod_name(cluster: str, agent: str) -> str:
    """Name of the agent's pod."""
    return f"{cluster}-{agent}-0"


def service_name(cluster: str) -> str:
    """Name of the headless Service that gives pods their DNS names."""
    return f"{cluster}-agents"


def external_service_name(cluster: str, agent: str) -> str:
    """Name of the Service that leads clients outside to the agent."""
    return f"{cluster}-{agent}-external"


def address(cluster: str, namespace: str, agent: str) -> str:
    """Return the DNS name and port that the operator dials; they stay when the pod's IP changes."""
    return f"{pod_name(cluster, agent)}.{service_name(cluster)}.{namespace}.svc:{PEER_PORT}"


def _number(name: str) -> int:
    found = _NAME.match(name)
    return int(found[1]) if found else 0


def _name(number: int) -> str:
    return f"agent-{number}"
