"""Stock clients that cache what they read, beside others that write: is a cached read ever too old?

A reader takes down what was answered before it reads.  On one machine what an agent has handed to a
socket is there, so what it told before it answered a writer has reached the reader by then.
"""

import time
from functools import partial
from typing import Any

from redis.cache import CacheConfig
from redis.maint_notifications import MaintNotificationsConfig

from quorate_cluster.background import Background
from quorate_cluster.client_errors import CLIENT_ERRORS, is_of_its_cache
from quorate_cluster.cluster import Cluster
from quorate_cluster.outage import key_in_each

WRITERS = 4
WRITE_EVERY_S = 0.01


class CachedReads(Background):
    """Two readers, each of all keys, and writers that share them; one key per partition."""

    def __init__(self, cluster: Cluster, zone: str, partitions: int) -> None:
        super().__init__()
        self.keys = key_in_each(partitions)
        self.reads = 0
        self.hits = 0
        self.too_old: list[tuple[str, int, int, bool, float, float]] = []
        """(key, what was read, what had been answered, whether the cache had it, seconds since the
        begin, seconds since that answer)."""
        self._began = time.monotonic()
        self._answered_at: dict[str, float] = {}
        self._answered = dict.fromkeys(self.keys, 0)
        self._cluster = cluster
        self._zone = zone
        for hears_of_moves in (True, False):
            self.add_road(partial(self._read, hears_of_moves))
        for number in range(WRITERS):
            self.add_road(partial(self._write, self.keys[number::WRITERS]))

    def answered(self) -> dict[str, int]:
        """The newest value of each key that a writer was told is there."""
        return dict(self._answered)

    def _write(self, keys: list[str]) -> None:
        # Short: a writer goes on elsewhere while its write waits at an agent that is cut off.
        client = self._cluster.client(self._zone, socket_timeout=2)
        value = 0
        while not self.stop.is_set():
            value += 1
            for key in keys:
                try:
                    client.set(key, value)
                except CLIENT_ERRORS:
                    continue  # whether it is there or not: nobody was told
                self._answered_at[key] = time.monotonic()
                self._answered[key] = value
                self.stop.wait(WRITE_EVERY_S)  # so that a key is read more often than written

    def _read(self, hears_of_moves: bool) -> None:
        client = self._cluster.client(
            self._zone,
            protocol=3,
            cache_config=CacheConfig(),
            # A client that hears of a hand-over, in its own time, forgets everything.
            maint_notifications_config=MaintNotificationsConfig(enabled=hears_of_moves),
        )
        cache: Any = client.nodes_manager._cache  # the client has no name for it
        while not self.stop.is_set():
            for key in self.keys:
                floor = self._answered[key]
                kept = any(key in entry.redis_keys for entry in list(cache.collection))
                try:
                    value = int(client.get(key) or 0)
                except CLIENT_ERRORS:
                    continue
                except Exception as error:
                    if not is_of_its_cache(error):
                        raise
                    continue
                self.reads += 1
                self.hits += kept
                if value < floor:
                    now = time.monotonic()
                    since = now - self._answered_at[key]
                    self.too_old.append((key, value, floor, kept, now - self._began, since))
            time.sleep(0)  # two readers and four writers share an interpreter
