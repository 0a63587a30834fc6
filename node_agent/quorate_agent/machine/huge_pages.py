"""Puts long values into transparent huge pages, where the system has them.

A value of 64 MiB is copied some five times on its way, each time into new memory.  Taking that
memory in pages of 4 KiB costs three times the CPU of the copy: 62 ms for both, 16 ms with huge
pages.  The C library (glibc 2.35 and later) asks for huge pages if an environment variable says so,
which it reads as the process starts; other libraries ignore it.
"""

import os
import sys

_VARIABLE = "GLIBC_TUNABLES"
_TUNABLE = "glibc.malloc.hugetlb"
_FOR_LARGE_BLOCKS = "1"
"""By madvise, where /sys/kernel/mm/transparent_hugepage/enabled is `madvise` or `always`."""

_STARTED_ANEW = "QUORATE_AGENT_STARTED_ANEW"
"""Set after the restart, because a loader may remove the other variable."""


def use_huge_pages() -> None:
    """Restart this process with huge pages, under the same process id, unless its environment
    mentions them.

    Call it first: the restart loses everything done before."""
    tunables = os.environ.get(_VARIABLE, "")
    if f"{_TUNABLE}=" in tunables or _STARTED_ANEW in os.environ:
        return
    os.environ[_STARTED_ANEW] = "1"
    own = f"{_TUNABLE}={_FOR_LARGE_BLOCKS}"
    os.environ[_VARIABLE] = f"{tunables}:{own}" if tunables else own
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
