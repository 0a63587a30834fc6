"""In which order a traced process wrote its log, made it durable and answered.

Reads what `strace -f -yy -xx` wrote.  A call that another thread's interrupts stands on two lines,
"<unfinished ...>" and "resumed"; its start and its end are the numbers of those lines.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_CALL = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_TARGET = re.compile(r"^\d+<(?P<target>.*?)>(?=[,) ]|$)")
_BYTE = re.compile(r"\\x([0-9a-f]{2})")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_SYNCS = ("fdatasync", "fsync")
_WRITES = ("write", "pwrite64", "writev", "pwritev", "sendto", "sendmsg")


@dataclass(frozen=True, slots=True)
class Call:
    """One finished system call on a file or socket: the lines where it started and ended."""

    name: str
    target: str
    """A path, or "TCP:[here->there]"."""
    data: bytes
    start: int
    end: int


def read_calls(lines: Iterable[str]) -> list[Call]:
    """All calls that ended, in order of their start."""
    begun: dict[tuple[str, str], tuple[int, str]] = {}
    found: list[Call] = []
    for number, line in enumerate(lines):
        if (resumed := _RESUMED.match(line)) is not None:
            at = begun.pop((resumed["pid"], resumed["name"]), None)
            if at is not None:
                found.append(_call(resumed["name"], at[1] + resumed["rest"], at[0], number))
        elif (call := _CALL.match(line)) is not None:
            if call["rest"].endswith("<unfinished ...>"):
                text = call["rest"].removesuffix("<unfinished ...>")
                begun[call["pid"], call["name"]] = number, text
            else:
                found.append(_call(call["name"], call["rest"], number, number))
    return sorted(found, key=lambda each: each.start)


def _call(name: str, rest: str, start: int, end: int) -> Call:
    target = _TARGET.match(rest)
    data = b"".join(_plain(string) for string in _STRING.findall(rest))
    path = target["target"] if target else ""
    if path.startswith("\\x"):  # -xx writes paths so as well
        path = _plain(path).decode(errors="replace")
    return Call(name, path, data, start, end)


def _plain(escaped: str) -> bytes:
    return bytes(int(each, 16) for each in _BYTE.findall(escaped))


def replies_before_durable(
    calls: list[Call], client_ports: dict[int, list[bytes]], log_name: str = r"\.log$"
) -> list[str]:
    """One sentence per answer that left before its update was durable; empty when none did.

    `client_ports[port]` are the values that this client wrote, one after the other: the n-th reply
    to it acknowledges the n-th value.  A value is durable once a sync of the log file ended that
    started after a write of the value to that file had ended.
    """
    logged = [c for c in calls if c.name in _WRITES and re.search(log_name, c.target)]
    syncs = [c for c in calls if c.name in _SYNCS and re.search(log_name, c.target)]
    found: list[str] = []
    for port, values in client_ports.items():
        answers = [
            call
            for call in calls
            if call.name in _WRITES and call.target.endswith(f"->127.0.0.1:{port}]")
            for _ in range(call.data.count(b"+OK\r\n"))
        ]
        if len(answers) != len(values):
            found.append(f"client {port}: {len(answers)} answers traced of {len(values)}")
        for answer, value in zip(answers, values, strict=False):
            written = [write for write in logged if value in write.data]
            durable = [
                sync.end
                for write in written
                for sync in syncs
                if sync.target == write.target and sync.start > write.end
            ]
            if not written:
                found.append(f"{value.decode()}: never written to the log")
            elif not durable or min(durable) > answer.start:
                found.append(f"{value.decode()}: answered before the log was synced")
    return found
