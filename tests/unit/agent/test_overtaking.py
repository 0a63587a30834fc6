"""Appends with long updates on a link between agents, and what may pass them."""

from collections.abc import AsyncIterator

import pytest

from quorate.protocol.messages.replication import Append, Batch
from quorate.wire.frames import encode_to_send
from quorate_agent.process.overtaking import APPEND_BYTES_MAX, Overtaking
from quorate_link import Link
from quorate_loopback.sides import Side, close_opened, linked
from quorate_loopback.waiting import until


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    await close_opened()


def _batch(partition: int, hwm: int, size: int = 10) -> Batch:
    return Batch(partition, 1, hwm, 0, 0, (bytes(size),))


def _append(*batches: Batch, zone: str = "z") -> Append:
    return Append(zone, batches)


LONG = _append(_batch(0, 1, 4 * APPEND_BYTES_MAX))


class _Sender:
    """An agent with a link to another, of which `heard` is what it was sent."""

    async def begin(self) -> None:
        """Connect them."""
        self._other, side = Side("agent-1"), Side("agent-2")
        self.overtaking = Overtaking()
        self.link: Link
        _, self.link = await linked(self._other, side)

    def send(self, message: Append) -> None:
        """As an agent does."""
        self.overtaking.send(self.link, message, encode_to_send(message))

    async def heard(self, count: int) -> list[Append]:
        """So many messages, in the order of their coming."""
        messages = self._other.messages
        await until(lambda: len(messages) == count, f"{count} messages")
        assert all(isinstance(each, Append) for each in messages)
        return [each for each in messages if isinstance(each, Append)]


@pytest.fixture
async def sender() -> _Sender:
    made = _Sender()
    await made.begin()
    return made


async def test_what_concerns_other_partitions_overtakes_a_long_update(sender: _Sender) -> None:
    passing = [_append(_batch(1, 1)), _append(_batch(0, 1), zone="another")]
    for message in (LONG, *passing):
        sender.send(message)

    assert await sender.heard(3) == [*passing, LONG]


async def test_updates_of_the_same_partition_keep_their_order(sender: _Sender) -> None:
    same = [_append(_batch(0, 2)), _append(_batch(0, 3))]
    for message in (LONG, same[0], _append(_batch(1, 1)), same[1]):
        sender.send(message)

    assert await sender.heard(4) == [_append(_batch(1, 1)), LONG, *same]


async def test_of_one_message_only_the_partition_of_the_long_update_waits(sender: _Sender) -> None:
    sender.send(LONG)
    sender.send(_append(_batch(1, 1), _batch(0, 2), _batch(2, 1)))

    passing = _append(_batch(1, 1), _batch(2, 1))
    assert await sender.heard(3) == [passing, LONG, _append(_batch(0, 2))]


async def test_behind_a_long_update_that_has_left_nothing_waits(sender: _Sender) -> None:
    sender.send(LONG)
    await sender.heard(1)
    assert not sender.link.bulk_bytes
    later = [_append(_batch(1, 1, 2 * APPEND_BYTES_MAX)), _append(_batch(0, 2))]
    for message in later:
        sender.send(message)

    assert await sender.heard(3) == [LONG, later[1], later[0]]


async def test_nor_where_the_link_has_more_bulk(sender: _Sender) -> None:
    bulk = _append(_batch(1, 1, 64 << 20))
    sender.send(LONG)
    sender.send(bulk)
    await sender.heard(1)
    assert sender.link.bulk_bytes
    later = _append(_batch(0, 2))
    sender.send(later)

    assert await sender.heard(3) == [LONG, later, bulk]


async def test_a_long_update_is_not_passed_for_ever(sender: _Sender) -> None:
    long = _append(_batch(0, 1, APPEND_BYTES_MAX + 1))
    sender.send(long)
    others = [_append(_batch(1, number, 200_000)) for number in range(1, 400)]
    for message in others:
        sender.send(message)

    heard = await sender.heard(400)

    assert [each for each in heard if each != long] == others
    assert heard.index(long) < 300
