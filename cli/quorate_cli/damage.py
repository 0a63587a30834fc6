"""Damaging one copy on purpose, so that one can see a validation find it.

Only an agent started with --debug-commands does it; the value is changed behind the protocol's back
in that one copy, which nobody notices until the copies are compared.
"""

from quorate.protocol.tool_messages import Damage, Damaged
from quorate_cli.agent_question import ask_agent
from quorate_cli.problem import Problem


def damage_copy(
    host: str, port: int, cluster: str, node: str, zone: str, key: bytes, value: bytes
) -> None:
    """Overwrite `key` in the copy that agent `node` (peer port host:port) has, and nowhere else."""
    answer = ask_agent(host, port, cluster, node, Damage(zone, key, value), Damaged)
    if answer.problem:
        raise Problem(f"{node} at {host}:{port}: {answer.problem}")
