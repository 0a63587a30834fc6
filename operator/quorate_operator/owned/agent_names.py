"""The agents of a managed cluster, and which of them leave when it is scaled down."""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from quorate.planning.absence.choose_leavers import AgentLoad, ClusterLoad, choose_leavers
from quorate.planning.absence.disruption import Disruption, EvictionBlock
from quorate.protocol.status import NodeStatus

PEER_PORT = 7100
EXTERNAL_PORT_OFFSET = 1000
"""Each zone's port for clients outside the Kubernetes cluster is its client port plus this."""
_NAME = re.compile(r"^agent-([1-9][0-9]{0,3})$")


class Agents(NamedTuple):
    """Names of the agents that stay and leave; those that leave are drained, then removed.

    `run`: False for a cluster scaled to 0: its pods end, its data stays.
    """

    staying: tuple[str, ...]
    leaving: tuple[str, ...]
    run: bool


def choose_agents(replicas: int, known: Collection[str], load: ClusterLoad) -> Agents:
    """Choose a cluster's agents.

    `known`: agents that have a StatefulSet or are registered; other names than agents' are ignored.
    New agents get the lowest free numbers, so that their earlier claims are used again.  Surplus
    agents that hold least leave first (choose_leavers.py), among equals those with the highest
    numbers.
    """
    numbers = sorted(number for number in map(_number, known) if number)
    if not replicas:
        return Agents(tuple(map(_name, numbers)), (), run=False)
    free = (n for n in range(1, replicas + len(numbers) + 1) if n not in numbers)
    while len(numbers) < replicas:
        numbers.append(next(free))
    about = {each.name: each for each in load.agents}
    names = [_name(number) for number in sorted(numbers)]
    agents = [about.get(name, AgentLoad(name, takes_part=False)) for name in names]
    leaving = choose_leavers(agents, len(numbers) - replicas, load.copies)
    return Agents(tuple(name for name in names if name not in leaving), leaving, run=True)


class Untold(NamedTuple):
    """Agents that leave and may have copies that no row names yet; `why`: a sentence."""

    agents: tuple[str, ...] = ()
    why: str = ""

    def undeclared(self, members: Iterable[NodeStatus]) -> list[str]:
        """Return those to declare, so that they are dialed.

        One that drains is dialed where it is registered: declared again, it would stay."""
        draining = {node.name for node in members if node.draining}
        return [agent for agent in self.agents if agent not in draining]


def untold_agents(
    agents: Agents, gone: Collection[str], disruption: Disruption, is_asking: bool
) -> Untold:
    """Return those that stay and are dialed until they have told what they have.

    Where rows are lost, agents that leave may be the only ones that know them.  `gone`: agents
    without a running process; `is_asking`: a new master has not heard all agents yet.
    """
    block = disruption.no_eviction
    if block is not None and block.reason is EvictionBlock.ROWS_REBUILT:
        return Untold(agents.leaving, block.message)
    running = tuple(agent for agent in agents.leaving if agent not in gone)
    if is_asking and running:
        return Untold(running, "agents are being asked what they have")
    return Untold()


def stateful_set_name(cluster: str, agent: str) -> str:
    """Return the name of the StatefulSet of one agent, and of its claim."""
    return f"{cluster}-{agent}"


def pod_name(cluster: str, agent: str) -> str:
    """Return the name of the agent's pod."""
    return f"{cluster}-{agent}-0"


def service_name(cluster: str) -> str:
    """Return the name of the headless Service that gives pods their DNS names."""
    return f"{cluster}-agents"


def external_service_name(cluster: str, agent: str) -> str:
    """Return the name of the Service through which external clients reach the agent."""
    return f"{cluster}-{agent}-external"


def address(cluster: str, namespace: str, agent: str) -> str:
    """Return the DNS name and port that the operator dials; they stay when the pod's IP changes."""
    return f"{pod_name(cluster, agent)}.{service_name(cluster)}.{namespace}.svc:{PEER_PORT}"


def announced_name(cluster: str, namespace: str, agent: str, domain: str) -> str:
    """Return the full DNS name of the agent's pod, as clients and other agents are told it."""
    return f"{pod_name(cluster, agent)}.{service_name(cluster)}.{namespace}.svc.{domain}"


def _number(name: str) -> int:
    found = _NAME.match(name)
    return int(found[1]) if found else 0


def _name(number: int) -> str:
    return f"agent-{number}"
