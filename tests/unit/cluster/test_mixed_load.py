"""The distribution of the mixed loads is the one that the benchmarks page states."""

import random
import statistics
from collections import Counter

import pytest

from quorate.facts.keyspace import SLOT_COUNT
from quorate_cluster.mixed_load import KEY_BYTES, LOADS, VALUE_BYTES, Share, value_bytes
from quorate_differential.raw_replies import encode_command

SMALL = Share(0, 2, 0.05)


def _words(stream: bytes) -> list[bytes]:
    """The words of an encoded command whose words have no line breaks."""
    return stream.split(b"\r\n")[2::2]


def test_keys_have_every_length_and_are_in_all_parts_of_the_slots() -> None:
    share = Share(0, 1, 0.2)

    sizes = Counter(map(len, share.strings))

    assert set(sizes) == set(range(KEY_BYTES[0], KEY_BYTES[1] + 1))
    assert max(sizes.values()) < 2 * statistics.median(sizes.values())
    sixteenths = Counter(16 * sent.slot // SLOT_COUNT for sent in share.commands("GET"))
    assert set(sixteenths) == set(range(16))
    assert max(sixteenths.values()) < 1.5 * min(sixteenths.values())


def test_values_have_the_stated_lengths() -> None:
    sizes = [value_bytes(random.Random(number)) for number in range(5_000)]

    assert (min(sizes), max(sizes)) == VALUE_BYTES
    assert statistics.median(sizes) == pytest.approx(200, abs=10)


@pytest.mark.parametrize("load", LOADS)
def test_a_load_has_the_stated_parts_of_each_command(load: str) -> None:
    found = Counter(_words(sent.stream)[0].decode() for sent in SMALL.commands(load))

    for kind, part in LOADS[load].items():
        assert found[kind.removeprefix("long ")] / found.total() == pytest.approx(part, abs=0.01)


@pytest.mark.parametrize("load", LOADS)
def test_half_a_stream_names_no_key_twice(load: str) -> None:
    commands = SMALL.commands(load)

    for half in commands[: len(commands) // 2], commands[len(commands) // 2 :]:
        named = []
        for sent in half:
            words = _words(sent.stream)
            named.append(tuple(words[1:3]) if words[0] in (b"HGET", b"HSET") else words[1])
        assert len(named) == len(set(named))


def test_what_is_written_differs_from_half_to_half() -> None:
    commands = [sent.stream for sent in SMALL.commands("80 % HGET, 20 % HSET") if sent.writes]

    assert len(set(commands)) == len(commands)


def test_shares_have_no_key_in_common_and_are_the_same_each_time() -> None:
    one, other = Share(0, 2, 0.05), Share(1, 2, 0.05)

    assert not set(one.strings) & set(other.strings)
    assert one.commands("mixed") == Share(0, 2, 0.05).commands("mixed")


@pytest.mark.parametrize("load", LOADS)
def test_filling_writes_every_key_that_a_load_names(load: str) -> None:
    written = {key for sent in SMALL.filling(load) for key in _keys(_words_of_any(sent.stream))}

    named = {key for sent in SMALL.commands(load) for key in _keys(_words_of_any(sent.stream))}
    assert named <= written


def _words_of_any(stream: bytes) -> list[bytes]:
    """The words of an encoded command, of which values may have line breaks."""
    words, at = [], stream.index(b"\r\n") + 2
    while at < len(stream):
        end = stream.index(b"\r\n", at)
        size = int(stream[at + 1 : end])
        words.append(stream[end + 2 : end + 2 + size])
        at = end + 4 + size
    assert encode_command(words) == stream
    return words


def _keys(words: list[bytes]) -> list[bytes]:
    return words[1:] if words[0] == b"MGET" else words[1:2]
