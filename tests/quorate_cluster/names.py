"""DNS names of a test's own: a hosts file that its processes see, and the test itself."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from quorate_cluster.processes import environment

_MOUNT = 'mount --bind "$0" /etc/hosts && exec "$@"'


class Names:
    """Names and their present addresses.  `prefix` starts a process that knows them."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = file
        self._hosts: dict[str, str] = {}
        self._system: Any = socket.getaddrinfo
        self.set({})
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    @property
    def prefix(self) -> list[str]:
        own_user = ["--map-root-user"] if os.getuid() else []
        return ["unshare", *own_user, "--mount", "sh", "-c", _MOUNT, str(self._file)]

    def set(self, hosts: Mapping[str, str]) -> None:
        """From now on these names lead to these addresses, and no others are known."""
        self._hosts = dict(hosts)
        lines = [f"{host} {name}\n" for name, host in hosts.items()]
        # In place: what is mounted is this very file.
        with self._file.open("w") as file:
            file.write("".join(["127.0.0.1 localhost\n", *lines]))

    def _look_up(self, host: Any, *rest: Any, **named: Any) -> Any:
        return self._system(self._hosts.get(host, host), *rest, **named)


def may_have_names() -> bool:
    """Whether this machine lets a test mount files of its own."""
    own_user = ["--map-root-user"] if os.getuid() else []
    command = ["unshare", *own_user, "--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def may_have_networks() -> bool:
    """Whether this machine lets a test have network namespaces of its own, with IPv6 in them."""
    command = [*own_network(), "grep", "--quiet", " lo$", "/proc/net/if_inet6"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def told_in_own_network(story: str, seconds: float) -> dict[str, Any]:
    """Run the module `quorate_cluster.STORY` in `own_network`; return what it prints last, as JSON.

    Raises AssertionError with what it says if it fails; TimeoutExpired after `seconds`.
    """
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
    done = subprocess.run(
        [*own_network(), sys.executable, "-m", f"quorate_cluster.{story}"],
        capture_output=True,
        text=True,
        env=variables,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def own_network() -> list[str]:
    """Return the words before a command that give it a network namespace with IPv6 only."""
    own_user = ["--map-root-user"] if os.getuid() else []
    up = 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$0" "$@"'
    return ["unshare", *own_user, "--net", "sh", "-c", up]
