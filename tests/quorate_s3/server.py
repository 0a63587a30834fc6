"""moto's server, installed into the cache as `moto.txt` pins it.

It is not among the packages of the environment: botocore wants an older python-dateutil than the
client library of Kubernetes does.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection

from kept_builds import cache_folder, fetch_package, version_of
from quorate_cluster.waiting import wait_until
from quorate_control_plane.ports import free_ports

PINS = Path(__file__).with_name("moto.txt")
START_S = 30.0


def is_installed() -> bool:
    """Whether the cache has it."""
    return _folder().exists()


def install() -> Path:
    """The folder with its packages; they are fetched where the cache has them not."""
    if not is_installed():
        fetch_package(PINS, _folder())
    return _folder()


@contextmanager
def s3_server(host: str = "127.0.0.1") -> Iterator[str]:
    """host:port of a server without buckets; any credentials are good."""
    port = next(free_ports(host))
    command = [sys.executable, "-S", "-P", "-m", "moto.server", "--host", host]
    with subprocess.Popen(
        [*command, "--port", str(port)],
        env={"PYTHONPATH": str(_folder())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            wait_until(lambda: _answers(host, port), "an answer of moto's server", START_S)
            yield f"{host}:{port}"
        finally:
            server.kill()


def _answers(host: str, port: int) -> bool:
    try:
        create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def _folder() -> Path:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache_folder() / f"moto-{version_of([PINS])}-{python}"
