"""The time as the core is given it with every event: two clocks, both in milliseconds."""

from typing import NamedTuple


class Now(NamedTuple):
    """One moment on both clocks.

    `wall_ms`: wall-clock time, for deadlines that users set and for expiry. `boot_ms`: time since
    boot, for leases, failure detection and election; it counts through suspension and never goes
    back.
    """

    wall_ms: int
    boot_ms: int
