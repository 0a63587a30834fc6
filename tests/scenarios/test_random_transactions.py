"""Transactions of few lists while whoever is struck at whatever step: some order explains them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random

import pytest

from quorate.facts.errors import InvariantError
from quorate_sim import planted_transactions
from quorate_sim.agent_process import AgentProcess
from quorate_sim.transaction_story import LIST_KEYS, TransactionStory
from quorate_sim.world import MS

pytestmark = pytest.mark.timeout(120)

SEEDS = range(16)
MESSAGES_MAX = 60
"""About as many as the transactions of one round exchange."""


def _strike(story: TransactionStory, chance: Random) -> None:
    """Something happens to one agent, or to the master."""
    living = [agent for agent in story.cluster.living() if not agent.frozen]
    agent = chance.choice(living)

    def freeze() -> None:
        agent.freeze()
        ms = chance.choice((200, 1500, 4000))
        story.world.after(ms * MS, lambda: agent.thaw() if agent.alive else None)

    def cut_off() -> None:
        story.cut_off(agent.name)
        story.world.after(chance.choice((100, 3000)) * MS, lambda: story.heal(agent.name))

    def fill_disk() -> None:
        for storage in agent.store.storages.values():
            storage.refuse = True

    def follow() -> None:
        story.cluster.masters[-1].die()
        story.cluster.add_master()

    def kill() -> None:
        if len(living) == len(story.cluster.agents):
            story.kill(agent)

    strikes: tuple[Callable[[], None], ...] = (kill, freeze, cut_off, fill_disk, fill_disk, follow)
    chance.choice(strikes)()


def _begin(story: TransactionStory, chance: Random, number: int) -> None:
    agents: list[AgentProcess] = story.cluster.living()
    keys = chance.sample(LIST_KEYS[:3], chance.choice((2, 2, 3)))
    wants = {
        key: b"%d.%d" % (number, at) if chance.random() < 0.7 else None
        for at, key in enumerate(keys)
    }
    story.cluster.transactors.send(-1, chance.choice(agents), wants)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_meanwhile_some_order_explains_all_transactions(seed: int) -> None:
    chance = Random(f"transactions {seed}")
    story = TransactionStory()
    story.cluster.network.duplicates = chance.choice((0.0, 0.3))
    when = {chance.randrange(MESSAGES_MAX) for _ in range(3)}
    count = 0

    def said(*_: object) -> None:
        nonlocal count
        if count in when:
            story.world.after(chance.choice((0, 0, 200, 2000)), lambda: _strike(story, chance))
        count += 1

    story.on_said = said
    for number in range(12):
        _begin(story, chance, number)
        story.run(chance.choice((0, 0, 1, 3, 20)))
    story.run(1000)
    story.on_said = lambda *_: None
    story.cluster.network.duplicates = 0.0
    story.rest()
    assert count > MESSAGES_MAX // 2


@pytest.mark.parametrize(
    "rule_off",
    [
        planted_transactions.decision_forgotten_early,
        planted_transactions.locks_forgotten,
        planted_transactions.locks_ignored,
        planted_transactions.open_is_aborted,
        planted_transactions.told_before_durable,
    ],
    ids=lambda rule_off: rule_off.__name__,
)
def test_without_a_rule_one_of_them_is_explained_by_none(
    rule_off: Callable[[], AbstractContextManager[None]],
) -> None:
    def tell_all() -> None:
        for seed in range(16 * len(SEEDS)):  # some are of consequence in one of thirty only
            test_whatever_happens_meanwhile_some_order_explains_all_transactions(seed)

    with rule_off(), pytest.raises(InvariantError, match="not serializable"):
        tell_all()
