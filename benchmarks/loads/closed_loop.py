"""One stock Redis Cluster client that writes and reads by turns until its input closes."""

import json
import sys
import threading
import time
from typing import Any

from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisError

KEYS = 1000
VALUE = b"v" * 100


def main() -> None:
    make: Any = ClusterNode  # its constructor ships without types
    nodes = [make(host, port) for host, port in json.loads(sys.argv[1])]
    client = RedisCluster(startup_nodes=nodes, socket_timeout=8)
    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    for number in range(KEYS):
        client.set(f"loop:{number}", VALUE)
    print("runs", flush=True)
    took: list[tuple[float, float]] = []
    failed: list[str] = []
    number = 0
    while not stop.is_set():
        number += 1
        began = time.monotonic()
        try:
            if number % 2:
                client.set(f"loop:{number % KEYS}", VALUE)
            else:
                client.get(f"loop:{number % KEYS}")
        except (RedisError, OSError) as error:
            failed.append(f"{type(error).__name__}: {error}")
        ended = time.monotonic()
        took.append((ended, (ended - began) * 1000))
    print(json.dumps({"took": took, "failed": failed}))


if __name__ == "__main__":
    main()
