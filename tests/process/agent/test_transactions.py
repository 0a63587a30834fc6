"""Transactions of stock clients while an agent is killed, or joins: all of each, or nothing."""

import random
import time
from functools import partial

import pytest
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import MovedError, WatchError
from redis.retry import Retry

from quorate_cluster.background import Background
from quorate_cluster.changes import Change, grow, lose
from quorate_cluster.client_errors import CLIENT_ERRORS, text_of, undocumented
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import Measured, StartCluster
from quorate_cluster.served import assert_served
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]

ACCOUNTS = 4
MONEY = 1000
TAGS = ("a", "b", "c", "d", "e", "f")
THREADS = 4


def _names(tag: str) -> list[str]:
    return [f"{{{tag}}}account-{number}" for number in range(ACCOUNTS)]


class _Bank(Background):
    """Clients that move money between accounts of one slot, each watching both accounts first, and
    one that adds each slot's accounts up."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster
        self.moved = dict.fromkeys(TAGS, 0)
        self.unknown = 0
        self.contended = 0
        self.failed: list[str] = []
        self.sums: set[int] = set()
        for number in range(THREADS):
            self.add_road(partial(self._move, number))
        self.add_road(self._add_up)

    def wait_moved(self) -> None:
        """Wait until the money of every slot has been moved again."""
        before = dict(self.moved)
        wait_until(
            lambda: all(self.moved[tag] > before[tag] for tag in TAGS), "a transaction of each slot"
        )

    def _move(self, number: int) -> None:
        chance = random.Random(number)
        # By itself redis-py connects again and repeats what was under way, without the WATCH of its
        # old connection: another transaction's move would be undone by half.
        client = self._cluster.client("z", retry=Retry(NoBackoff(), 0), reinitialize_steps=1)
        while not self.stop.is_set():
            tag = chance.choice(TAGS)
            self._move_once(client, tag, *chance.sample(_names(tag), 2))
            time.sleep(0.002)

    def _move_once(self, client: RedisCluster, tag: str, giver: str, taker: str) -> None:
        pipe = client.pipeline(transaction=True)
        try:
            pipe.watch(giver, taker)
            has, gets = int(pipe.get(giver)), int(pipe.get(taker))
            pipe.multi()
            pipe.set(giver, has - 1)
            pipe.set(taker, gets + 1)
            pipe.incr(f"{{{tag}}}moves")
            pipe.execute()
        except (WatchError, MovedError):
            self.contended += 1
        except CLIENT_ERRORS as error:
            self.failed.append(text_of(error))
            self.unknown += 1
        else:
            self.moved[tag] += 1
        finally:
            pipe.reset()

    def _add_up(self) -> None:
        client = self._cluster.client("z")
        while not self.stop.is_set():
            for tag in TAGS:
                try:
                    self.sums.add(sum(map(int, client.mget(_names(tag)))))
                except CLIENT_ERRORS as error:
                    self.failed.append(text_of(error))
            time.sleep(0.005)


@pytest.mark.parametrize("change", [lose, grow], ids=["loss", "growth"])
def test_money_moved_by_transactions_stays_the_same_whatever_happens(
    start_cluster: StartCluster, measured: Measured, change: Change
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=64)
    client = cluster.client("z")
    for tag in TAGS:
        client.mset_nonatomic(dict.fromkeys(_names(tag), MONEY))
    with _Bank(cluster) as bank:
        bank.wait_moved()
        change(cluster)
        bank.wait_moved()

    measured(
        f"transactions, {change.__name__.strip('_')}",
        f"{sum(bank.moved.values())} done, {bank.contended} met others, {bank.unknown} of unknown"
        " outcome",
    )
    assert bank.sums == {ACCOUNTS * MONEY}
    client = cluster.client("z")
    for tag in TAGS:
        assert sum(map(int, client.mget(_names(tag)))) == ACCOUNTS * MONEY
        counted = int(client.get(f"{{{tag}}}moves"))
        assert bank.moved[tag] <= counted <= bank.moved[tag] + bank.unknown
    if change is grow:
        assert undocumented(bank.failed) == []
        assert_served(cluster, bank.failed)
