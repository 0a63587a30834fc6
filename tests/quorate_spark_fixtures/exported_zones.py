"""Two zones for exports by commands, of other partitions and storage; keys; types of fixtures."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from redis import RedisCluster

LIBRARY = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: library}
spec: {clusterRef: {name: main}, partitions: 4, replicas: 3}
"""
SHELVES = """
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: shelves}
spec: {clusterRef: {name: main}, partitions: 16, replicas: 2, storage: InMemory}
"""

Quorate = Callable[..., str]
Damageable = Callable[[str, int], AbstractContextManager[RedisCluster]]


def set_keys(library: Any, first: int, upto: int) -> None:
    """Set key-N to value-N, for each N from `first` on and below `upto`, 1,000 at a time."""
    for start in range(first, upto, 1000):
        with library.pipeline() as pipe:
            for number in range(start, min(start + 1000, upto)):
                pipe.set(f"key-{number}", f"value-{number}")
            pipe.execute()
