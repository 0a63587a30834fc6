"""Map keys to slots and partitions.

Slots are those of Redis Cluster: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16384. A
zone has P partitions, P a power of two up to 16384, so partition = slot * P // 16384 gives each
partition an equal contiguous range of slots.
"""

from binascii import crc_hqx

SLOT_COUNT = 16384

TAG = ord("{")
"""Begins a hash tag. It is an int, because Python's search in bytes for a bytes object that is
absent raises and drops a TypeError first, 0.2 µs each time."""

RESERVED = b"\x00quorate\x00"
"""Prefix of internal keys. Commands that name such a key are refused; commands that list or count
keys skip them."""

FIRST_UNRESERVED = b"\1"
"""The lowest key, in byte order, above all reserved ones."""


def is_reserved(key: bytes) -> bool:
    """Return whether the key is internal, so that clients may not name it."""
    return key.startswith(RESERVED)


def key_slot(key: bytes) -> int:
    """Return the slot of `key`, 0..16383.

    The hash tag is the text between the first `{` and the next `}`, if it is not empty.
    """
    tag, end, _ = key.partition(b"{")[2].partition(b"}")
    return crc_hqx(tag if tag and end else key, 0) & 16383


def is_partition_count(count: int) -> bool:
    """Return whether `count` is a power of two in 1..16384."""
    return 0 < count <= SLOT_COUNT and count & (count - 1) == 0


def slot_shift(partitions: int) -> int:
    """Return the right shift that turns a slot into a partition: partition = slot >> shift."""
    return (SLOT_COUNT // partitions).bit_length() - 1


def key_partition(key: bytes, partitions: int) -> int:
    """Return the partition of `key` in a zone of `partitions` partitions."""
    return key_slot(key) >> slot_shift(partitions)


def partition_slots(partition: int, partitions: int) -> tuple[int, int]:
    """Return the first and last slot (inclusive) of `partition`."""
    width = SLOT_COUNT // partitions
    return partition * width, (partition + 1) * width - 1


def printable(data: bytes) -> str:
    """Return a key or value for people: its text, with escapes for unprintable bytes."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
