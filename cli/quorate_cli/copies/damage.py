"""Damages one copy on purpose, to show that a validation finds it.

Only an agent started with --debug-commands does it.  It changes the value in its copy behind the
protocol's back, which goes unnoticed until the copies are compared.
"""

from quorate.protocol.messages.tools import Damage, Damaged
from quorate_cli.copies.agent_question import Asked, ask_agent
from quorate_cli.terminal.problem import Problem


def damage_copy(agent: Asked, zone: str, key: bytes, value: bytes) -> None:
    """Overwrite `key` in the agent's copy, and nowhere else."""
    answer = ask_agent(agent, Damage(zone, key, value), Damaged)
    if answer.problem:
        raise Problem(f"{agent.where}: {answer.problem}")
