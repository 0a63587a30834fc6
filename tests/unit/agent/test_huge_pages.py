"""An agent's process asks the C library for huge pages, once, and keeps what else is set."""

import os
import subprocess
import sys

import pytest

_SHOW = """
import os, sys
from quorate_agent.machine.huge_pages import use_huge_pages
print(os.getpid(), os.environ.get("GLIBC_TUNABLES", ""), *sys.argv[1:], flush=True)
use_huge_pages()
print("runs")
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.arena_max=2", "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_a_process_is_started_anew_under_its_number(before: str | None, after: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    if before is not None:
        environment["GLIBC_TUNABLES"] = before
    command = [sys.executable, "-P", "-c", _SHOW, "--name", "a b"]

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)

    starts = [f"{process.pid} {each} --name a b" for each in dict.fromkeys([before or "", after])]
    assert said.splitlines() == [*starts, "runs"]
    assert process.returncode == 0
