"""A client that goes on all the time while something happens to operators or the API server."""

import threading

from redis.cluster import RedisCluster

_PAUSE_S = 0.02
"""Some fifty pairs of commands a second: a refusal lasts longer, and faster clients would take a
whole processor from the programs under test."""


class Load:
    """A client that writes and reads its keys all the time; `failed` is what it was refused."""

    def __init__(self, client: RedisCluster) -> None:
        self.done = 0
        self.failed: list[str] = []
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(_PAUSE_S):
            number += 1
            key, value = f"load-{number % 500}", str(number)
            try:
                self._client.set(key, value)
                found = self._client.get(key)
                if found != value.encode():
                    self.failed.append(f"{key}: {found!r} instead of {value}")
            except Exception as error:
                self.failed.append(f"{key}: {error!r}")
            self.done += 2
