"""The costs of agents and operator of a development cluster while nothing happens in many zones.

    PYTHONPATH=core:operator:tests python benchmarks/zones_at_rest.py --zones 200 --partitions 64

Declares the zones, waits until all of them serve and nothing is moved, then counts the CPU seconds
of each process, over `--seconds`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_WAIT_S = 900.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zones", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--agents", type=int, default=5)
    parser.add_argument("--storage", default="InMemory", choices=("InMemory", "Persistent"))
    parser.add_argument("--settle-seconds", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quorate-rest-") as folder:
        cluster = Path(folder) / "cluster"
        try:
            _measure(asked, cluster)
        finally:
            _quorate(cluster, "dev", "down")


def _measure(asked: argparse.Namespace, cluster: Path) -> None:
    _quorate(cluster, "dev", "up", "--agents", str(asked.agents))
    manifest = cluster.parent / "zones.yaml"
    manifest.write_text("\n---\n".join(map(json.dumps, _zones(asked))))
    began_s = time.monotonic()
    _quorate(cluster, "apply", "-f", str(manifest), "--wait", str(_WAIT_S))
    print(f"every zone serves after {time.monotonic() - began_s:.0f} s")
    time.sleep(asked.settle_seconds)
    processes = _processes(cluster)
    before = {name: _cpu_s(pid) for name, pid in processes.items()}
    at_s = time.monotonic()
    time.sleep(asked.seconds)
    passed_s = time.monotonic() - at_s
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs, over {passed_s:.1f} s")
    for name, pid in processes.items():
        core = (_cpu_s(pid) - before[name]) / passed_s
        print(f"{name}: {core:.4f} of a core, {_memory_mb(pid):.0f} MB")


def _zones(asked: argparse.Namespace) -> list[dict[str, object]]:
    spec = {
        "clusterRef": {"name": "main"},
        "partitions": asked.partitions,
        "replicas": 3,
        "storage": asked.storage,
    }
    return [
        {
            "apiVersion": "quorate.io/v1alpha1",
            "kind": "Zone",
            "metadata": {"name": f"zone-{number:04}"},
            "spec": spec,
        }
        for number in range(asked.zones)
    ]


def _quorate(cluster: Path, *words: str) -> str:
    command = [sys.executable, "-m", "quorate_cli", *words]
    environment = {**os.environ, "QUORATE_FOLDER": str(cluster)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def _processes(cluster: Path) -> dict[str, int]:
    """Each process of the cluster, by name; those that were started with its folder."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        line = " ".join(words)
        if str(cluster) in line and "quorate_agent" in line:
            name = re.search(r"agent-\d+", line)
            found[name[0] if name else entry.name] = int(entry.name)
        elif str(cluster) in line and "quorate_operator" in line:
            found["operator"] = int(entry.name)
    return dict(sorted(found.items()))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _memory_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
