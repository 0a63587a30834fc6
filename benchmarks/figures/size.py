"""How much is measured: whole, or quickly."""

from dataclasses import dataclass

PARTITIONS = 64


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    requests: int
    beside_s: float
    repeats: int
    joining_bytes: int
    keys: int
    small_keys: int
    idle_s: float
    master_partitions: int
    mixed_s: float
    mixed_scale: float
    idle_connections: int


FULL = Size(200_000, 5, 3, 1_000_000_000, 1_000_000, 100_000, 10, 16_384, 3, 1, 10_000)
QUICK = Size(30_000, 2, 1, 20_000_000, 100_000, 20_000, 2, 1_024, 0.5, 0.1, 1_000)
