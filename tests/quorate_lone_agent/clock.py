"""The machine's clocks, on which time also passes when a test says so."""

from quorate.facts.time import Now
from quorate_agent.machine.clock import MachineClock


class MovedClock(MachineClock):
    """Boot time, wall time and measured times are so far ahead of this machine's."""

    __slots__ = ("ahead_ms", "passed_ahead_s", "used_ahead_s", "wall_ahead_ms")

    def __init__(self) -> None:
        self.ahead_ms = self.wall_ahead_ms = 0
        self.passed_ahead_s = self.used_ahead_s = 0.0
        super().__init__()

    def passed_s(self) -> float:
        return MachineClock.passed_s() + self.passed_ahead_s

    def thread_cpu_s(self) -> float:
        return MachineClock.thread_cpu_s() + self.used_ahead_s

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_ahead_ms

    def wall_us(self) -> int:
        return super().wall_us() + self.wall_ahead_ms * 1000

    def boot_ms(self) -> int:
        return super().boot_ms() + self.ahead_ms

    def now(self) -> Now:
        return Now(self.wall_ms(), self.boot_ms())
