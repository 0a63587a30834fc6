"""The facts about this process and its machine that INFO reports, in Redis' terms."""

import os
import resource
import struct
import sys

from quorate_agent.machine.clock import Clock
from quorate_agent.machine.memory_limit import resident_bytes

_UNITS = "KMGTP"

Facts = dict[str, str | int]


def server_facts(clock: Clock) -> Facts:
    """Return the fields of section Server."""
    name = os.uname()
    uptime_s = (clock.boot_ms() - clock.started_ms) // 1000
    return {
        "os": f"{name.sysname} {name.release} {name.machine}",
        "arch_bits": 8 * struct.calcsize("P"),
        "multiplexing_api": "epoll",
        "process_id": os.getpid(),
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s // 86_400,
        "executable": sys.executable,
        "io_threads_active": 0,
    }


def memory_facts() -> Facts:
    """Return the fields of section Memory.

    Python's allocator does not tell how much is in use, so `used_memory` is the resident size."""
    resident = resident_bytes()
    peak = max(resident, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found: Facts = {}
    for field, size in (
        ("used_memory", resident),
        ("used_memory_rss", resident),
        ("used_memory_peak", peak),
        ("total_system_memory", whole),
    ):
        found |= {field: size, f"{field}_human": human_bytes(size)}
    return found | {"used_memory_peak_perc": f"{resident / peak:.2%}"}


def processor_facts() -> Facts:
    """Return the fields of section CPU."""
    found: Facts = {}
    for suffix, whose in (
        ("", resource.RUSAGE_SELF),
        ("_children", resource.RUSAGE_CHILDREN),
        ("_main_thread", resource.RUSAGE_THREAD),
    ):
        used = resource.getrusage(whose)
        found |= {
            f"used_cpu_sys{suffix}": f"{used.ru_stime:.6f}",
            f"used_cpu_user{suffix}": f"{used.ru_utime:.6f}",
        }
    return found


def human_bytes(size: int) -> str:
    """Return the size as Redis shows it: 1.61M."""
    if size < 1024:
        return f"{size}B"
    power = 1
    while power < len(_UNITS) and size >= 1024 ** (power + 1):
        power += 1
    return f"{size / 1024**power:.2f}{_UNITS[power - 1]}"
