"""The process that is number 1 of a node: it mounts, sets addresses, and keeps programs running.

Run as `python inside.py FILE` in new namespaces; FILE is JSON, written by `node.py`.  Needs nothing
but the standard library.  When it ends, the kernel ends everything in the node, as if the power
were gone.
"""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

_WAIT_S = 30.0


def main(told: dict[str, Any]) -> None:
    _mount(told)
    socket.sethostname(told["name"])
    _network(told["address"], told["routes"])
    running: dict[int, str] = {}
    for name in told["programs"]:
        running[_start(name, told)] = name
        if name == "containerd":
            _wait_for(lambda: Path("/run/containerd/containerd.sock").exists())
    while True:
        ended, status = os.wait()  # also those whose parent is gone
        name = running.pop(ended, "")
        if name:
            with _log(name, told) as log:
                log.write(f"--- {name} ended with status {status}: it starts again\n")
            time.sleep(1)
            running[_start(name, told)] = name


def _mount(told: dict[str, Any]) -> None:
    """What the kubelet mounts shows up for containerd, and nothing of it outside of the node."""
    _run("mount", "--make-rshared", "/")
    for place in told["fresh"]:
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place)
    for place, kept in told["folders"].items():
        Path(place).mkdir(parents=True, exist_ok=True)
        _run("mount", "--bind", kept, place)
    resolver = Path("/etc/resolv.conf").resolve()  # of a place below /run, maybe
    resolver.parent.mkdir(parents=True, exist_ok=True)
    resolver.touch()
    _run("mount", "--bind", told["resolv_conf"], str(resolver))
    for name, path in told["settings"].items():
        # The kubelet wants to set these for the whole machine: here it sets files.
        if Path("/proc/sys", name).exists():
            _run("mount", "--bind", path, f"/proc/sys/{name}")


def _network(address: str, routes: dict[str, str]) -> None:
    _run("ip", "link", "set", "lo", "up")
    _wait_for(lambda: "eth0:" in Path("/proc/net/dev").read_text())
    _run("ip", "address", "add", f"{address}/24", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    for pods, node in routes.items():
        _run("ip", "route", "add", pods, "via", node)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _start(name: str, told: dict[str, Any]) -> int:
    with _log(name, told) as log:
        process = subprocess.Popen(
            told["programs"][name], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    process.returncode = 0  # it is this loop that waits for it
    return process.pid


def _log(name: str, told: dict[str, Any]) -> IO[str]:
    return Path(told["logs"], f"{name}.log").open("a")


def _wait_for(is_so: Any) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
