"""Transactions of which a reset may have taken a part are judged by the rest, all others whole."""

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.keyspace import key_partition
from quorate.protocol.transactions.coordinator import Outcome
from quorate_sim.transaction_story import PARTITIONS, TransactionStory
from quorate_sim.transactors import ZONE, Transaction


def answered(story: TransactionStory, number: int, wants: dict[bytes, bytes | None]) -> None:
    """A transaction was answered, and nothing of it is there."""
    txn = Transaction(number, -1, wants, 0)
    txn.outcome, txn.end_us = Outcome.COMMITTED, 1
    story.cluster.transactors.history.append(txn)


@pytest.fixture
def story() -> TransactionStory:
    made = TransactionStory()
    answered(made, 98, {made.low: b"98.0", made.high: b"98.1"})
    return made


def reset(story: TransactionStory, key: bytes) -> None:
    """The key's partition lost some of what was acknowledged."""
    story.cluster.checks.resets.torn[ZONE].add(key_partition(key, PARTITIONS))


def test_without_a_reset_both_parts_are_there(story: TransactionStory) -> None:
    with pytest.raises(InvariantError, match="a part of it happened, or nothing"):
        story.cluster.transactors.check()


@pytest.mark.parametrize("is_home", [True, False])
def test_a_reset_may_take_a_part_and_the_decision(story: TransactionStory, is_home: bool) -> None:
    reset(story, story.low if is_home else story.high)
    story.cluster.transactors.check()


def test_it_takes_nothing_of_transactions_elsewhere(story: TransactionStory) -> None:
    reset(story, story.low)
    answered(story, 99, {story.high: b"99.0"})

    with pytest.raises(InvariantError, match=r"nothing though it was answered: #99"):
        story.cluster.transactors.check()
