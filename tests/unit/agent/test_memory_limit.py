"""The memory limit is the least of the cgroups' limits, in both versions of cgroups."""

from pathlib import Path

import pytest

from quorate_agent.machine.memory_limit import memory_limit


def _machine(root: Path, cgroup: str, limits: dict[str, str]) -> Path:
    """A folder with these lines in /proc/self/cgroup and these files under /sys/fs/cgroup."""
    files = {"proc/self/cgroup": cgroup}
    files |= {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "limits", "expected", "where"),
    [
        ("0::/\n", {"memory.max": "1048576\n"}, 1048576, "/sys/fs/cgroup/memory.max"),
        (
            "0::/pods/one\n",
            {"pods/one/memory.max": "max\n", "pods/memory.max": "5000\n"},
            5000,
            "/sys/fs/cgroup/pods/memory.max",
        ),
        (
            "0::/pods/one\n",
            {"pods/one/memory.max": "4000\n", "pods/memory.max": "5000\n"},
            4000,
            "/sys/fs/cgroup/pods/one/memory.max",
        ),
        (
            "12:cpu:/a\n5:memory:/a/b\n0::/\n",
            {"memory/a/b/memory.limit_in_bytes": "7000\n", "cpu/a/memory.limit_in_bytes": "1\n"},
            7000,
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
        ),
        (  # a container of version 1 sees the host's path and mounts its own group at the top
            "5:hugetlb,memory:/docker/0123\n",
            {"memory/memory.limit_in_bytes": "9000\n"},
            9000,
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ),
    ],
)
def test_the_least_limit_of_a_cgroup_counts(
    tmp_path: Path, cgroup: str, limits: dict[str, str], expected: int, where: str
) -> None:
    assert memory_limit(_machine(tmp_path, cgroup, limits)) == (expected, where)


@pytest.mark.parametrize(
    ("cgroup", "limits"),
    [
        ("0::/\n", {"memory.max": "max\n"}),
        ("0::/\n", {}),
        ("5:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}),
        ("", {}),
    ],
)
def test_without_a_limit_the_machine_s_memory_counts(
    tmp_path: Path, cgroup: str, limits: dict[str, str]
) -> None:
    limit = memory_limit(_machine(tmp_path, cgroup, limits))

    total_kib = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    assert limit == (total_kib * 1024, "the machine's memory")


def test_a_limit_above_the_machine_s_memory_is_none(tmp_path: Path) -> None:
    root = _machine(tmp_path, "0::/\n", {"memory.max": f"{1 << 59}\n"})

    assert memory_limit(root).source == "the machine's memory"
