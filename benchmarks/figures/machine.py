"""On which machine, with which versions, and when a benchmark ran.  No names and no paths."""

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

_PACKAGES = ("uvloop", "hiredis", "msgspec", "rocksdict", "redis")


def describe() -> list[tuple[str, str]]:
    """(what, value) of everything a reader needs to judge the figures."""
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PACKAGES)
    return [
        ("CPU", f"{_cpu_model()}, {os.cpu_count()} CPUs"),
        ("memory", f"{_memory_gib():.0f} GiB"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("Python", platform.python_version()),
        ("packages", packages),
        ("beside", _redis_version()),
    ]


def moment() -> str:
    """When something is measured, and whether the machine has other things to do."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs ({_cpu_model()})"
    return f"Measured {today}; load before: {load}."


def _cpu_model() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)


def _redis_version() -> str:
    said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"v=(\S+)", said)
    return f"redis-server {found.group(1)}" if found else "redis-server, version unknown"
