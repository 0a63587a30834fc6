"""Two zones for exports by commands, of other partitions and storage, and types of fixtures."""

from collections.abc import Callable
from contextlib import AbstractContextManager

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
