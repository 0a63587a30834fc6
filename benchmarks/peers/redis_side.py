"""The peers from Redis: one redis-server, or a Redis Cluster, of this machine."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_control_plane.kept_folder import KeptFolder
from quorate_control_plane.ports import free_ports

HOST = "127.0.0.1"


class RedisServer(Component):
    """One redis-server that keeps nothing on disk, unless its options say so."""

    def __init__(self, name: str, folder: Path, port: int, *options: str) -> None:
        self.port = port
        data = folder / name
        data.mkdir()
        command = ["redis-server", "--port", str(port), "--bind", HOST, "--dir", str(data)]
        command += ["--save", "", "--appendonly", "no", "--protected-mode", "no", *options]
        super().__init__(name, folder, command)

    def wait_listening(self) -> None:
        def answers() -> bool:
            try:
                with redis.Redis(port=self.port, socket_timeout=2) as client:
                    return bool(client.ping())
            except redis.RedisError:
                return False

        wait_until(answers, f"answer of {self.name}", 20, self.log_tail)


@contextmanager
def one_redis_server() -> Iterator[RedisServer]:
    """A plain redis-server."""
    kept = KeptFolder("quorate-bench-")
    try:
        server = RedisServer("redis", kept.path, next(free_ports()))
        server.start()
        server.wait_listening()
        yield server
    finally:
        kept.close()


@contextmanager
def redis_cluster(replicas: int, *options: str) -> Iterator[list[RedisServer]]:
    """Three masters with `replicas` replicas each, as redis-cli puts them together; `options` are
    each server's."""
    kept = KeptFolder("quorate-bench-")
    try:
        ports = free_ports()
        servers = [
            RedisServer(
                f"redis-{number}",
                kept.path,
                next(ports),
                *("--cluster-enabled", "yes", "--cluster-port", str(next(ports)), *options),
            )
            for number in range(3 * (1 + replicas))
        ]
        for server in servers:
            server.start()
        for server in servers:
            server.wait_listening()
        addresses = [f"{HOST}:{server.port}" for server in servers]
        command = ["redis-cli", "--cluster", "create", *addresses]
        command += ["--cluster-replicas", str(replicas), "--cluster-yes"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        wait_until(lambda: all(map(_is_whole, servers)), "whole Redis Cluster", 60)
        time.sleep(2)  # replicas that were just attached still load their first copy
        yield servers
    finally:
        kept.close()


def _is_whole(server: RedisServer) -> bool:
    with redis.Redis(port=server.port, socket_timeout=2) as client:
        said = str(client.execute_command("CLUSTER INFO"))
        replication = client.info("replication")
    linked = replication["role"] == "master" or replication["master_link_status"] == "up"
    return "'cluster_state': 'ok'" in said and linked
