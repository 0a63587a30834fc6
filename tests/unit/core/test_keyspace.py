"""Slots are Redis Cluster's, partitions are equal runs of slots."""

import itertools

import pytest

from quorate.facts.keyspace import (
    SLOT_COUNT,
    is_partition_count,
    key_partition,
    key_slot,
    partition_slots,
)


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        (b"", 0),
        (b"123456789", 0x31C3 & 16383),  # the check value of CRC16/XMODEM
        (b"foo", 12182),
        (b"bar", 5061),
        (b"hello", 866),
    ],
)
def test_known_keys_have_the_slot_that_redis_answers(key: bytes, slot: int) -> None:
    assert key_slot(key) == slot


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"{user1000}.following", b"user1000"),
        (b"a{user1000}", b"user1000"),
        (b"foo{bar}{zap}", b"bar"),  # only the first tag
        (b"foo{{bar}}zap", b"{bar"),  # from the first { to the next }
        (b"foo}{bar}", b"bar"),  # a } before the { is nothing
    ],
)
def test_a_hash_tag_is_hashed_instead_of_the_key(key: bytes, hashed: bytes) -> None:
    assert key_slot(key) == key_slot(hashed)
    assert b"{" not in hashed or hashed == b"{bar"


@pytest.mark.parametrize("key", [b"foo{}{bar}", b"{}", b"foo{bar", b"foo}bar", b"{"])
def test_without_a_closed_and_filled_tag_the_whole_key_is_hashed(key: bytes) -> None:
    from binascii import crc_hqx

    assert key_slot(key) == crc_hqx(key, 0) % SLOT_COUNT


def test_partition_counts_are_powers_of_two_up_to_the_number_of_slots() -> None:
    allowed = [count for count in range(-2, 2 * SLOT_COUNT) if is_partition_count(count)]

    assert allowed == [2**power for power in range(15)]


@pytest.mark.parametrize("partitions", [1, 2, 16, 1024, 16384])
def test_a_partition_is_slot_times_partitions_over_slots(partitions: int) -> None:
    keys = [f"key-{number}".encode() for number in range(500)]

    for key in keys:
        partition = key_partition(key, partitions)
        first, last = partition_slots(partition, partitions)
        assert partition == key_slot(key) * partitions // SLOT_COUNT
        assert first <= key_slot(key) <= last


@pytest.mark.parametrize("partitions", [1, 8, 16384])
def test_partitions_cover_all_slots_once_in_order(partitions: int) -> None:
    bounds = [partition_slots(partition, partitions) for partition in range(partitions)]

    assert bounds[0][0] == 0
    assert bounds[-1][1] == SLOT_COUNT - 1
    for (_, last), (first, _) in itertools.pairwise(bounds):
        assert first == last + 1
