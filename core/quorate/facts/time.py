"""What time it is: two clocks, both in milliseconds, handed in with every event."""

from typing import NamedTuple


class Now(NamedTuple):
    """`wall_ms`: deadlines people set, expiry.  `boot_ms`: leases, detection, election; it runs
    through suspension and never goes back."""

    wall_ms: int
    boot_ms: int
