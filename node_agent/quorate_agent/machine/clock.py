"""The clocks of the machine, as one object.

The process makes it and hands it to what decides by time.  Waits use the event loop's own clock."""

from time import CLOCK_BOOTTIME, clock_gettime_ns, monotonic, process_time, thread_time, time_ns
from typing import Protocol

from quorate.facts.time import Now


class Clock(Protocol):
    """The clocks of one process.  The process makes a MachineClock; a simulation hands in its own.

    `started_ms`: when the process started (boot ms)."""

    started_ms: int

    def wall_ms(self) -> int:
        """Return the wall clock's time: for expiry, and for what clients are shown."""

    def wall_us(self) -> int:
        """Return the wall clock's time in microseconds."""

    def boot_ms(self) -> int:
        """Return milliseconds of the clock that also runs while the machine is suspended."""

    def now(self) -> Now:
        """Return one moment on both of these clocks, as the core takes it."""

    def passed_s(self) -> float:
        """Return seconds of the clock that measures how long something takes."""

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the process has used."""

    def thread_cpu_s(self) -> float:
        """Return the seconds of CPU that this thread has used: for bounds on clients' commands,
        which a busy machine must not shorten."""


class MachineClock:
    """The clocks of this machine and this process."""

    __slots__ = ("started_ms",)

    passed_s = staticmethod(monotonic)  # no method of ours in between: it is called very often
    thread_cpu_s = staticmethod(thread_time)

    def __init__(self) -> None:
        self.started_ms = self.boot_ms()

    def wall_ms(self) -> int:
        """Return the wall clock's time in milliseconds."""
        return time_ns() // 1_000_000

    def wall_us(self) -> int:
        """Return the wall clock's time in microseconds."""
        return time_ns() // 1_000

    def boot_ms(self) -> int:
        """Return milliseconds of the clock that also runs while the machine is suspended."""
        return clock_gettime_ns(CLOCK_BOOTTIME) // 1_000_000

    def now(self) -> Now:
        """Return one moment on both of these clocks."""
        return Now(time_ns() // 1_000_000, clock_gettime_ns(CLOCK_BOOTTIME) // 1_000_000)

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the process has used."""
        return process_time()
