"""Damaging one copy on purpose, so that one can see a validation find it.

Only an agent started with --debug-commands does it; the value is changed behind the protocol's back
in that one copy, which nobody notices until the copies are compared.
"""

from quorate.protocol.messages.tools import Damage, Damaged
from quorate_cli.copies.agent_question import Asked, ask_agent
from quorate_cli.terminal.problem import Problem


def damage_copy(agent: Asked, zone: str, key: bytes, value: bytes) -> None:
    """Overwrite `key` in the copy that the agent has, and nowhere else."""
    answer = ask_agent(agent, Damage(zone, key, value), Damaged)
    if answer.problem:
        raise Problem(f"{agent.node} at {agent.host}:{agent.port}: {answer.problem}")
