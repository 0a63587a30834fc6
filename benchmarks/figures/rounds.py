"""Runs of several sides by turns in one session, what each run found, and how they compare."""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One run.  CPU seconds are those of 100,000 operations, of all server processes and of the
    client's own."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_s: float
    client_cpu_s: float

    def __str__(self) -> str:
        return (
            f"{self.rate:,.0f}/s, p50 {self.p50_ms:.2f} ms, p99 {self.p99_ms:.2f} ms,"
            f" CPU s {self.cpu_s:.2f}, client's {self.client_cpu_s:.2f}"
        )

    @property
    def client_load(self) -> float:
        """How many CPUs the client used: near to 1 for each of its processes it is measured too."""
        return self.client_cpu_s * self.rate / 100_000


def alternate(
    what: str, rounds: int, sides: Mapping[str, Callable[[], Run]]
) -> dict[str, list[Run]]:
    """Every side once in each round, in the other order in every second round.

    Runs of one round stand side by side in time: compare those.  Each is told on stderr.
    """
    found: dict[str, list[Run]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in list(sides) if number % 2 == 0 else reversed(list(sides)):
            run = sides[name]()
            found[name].append(run)
            print(f"{what}, round {number + 1}, {name}: {run}", file=sys.stderr, flush=True)
    return found


def middle(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    return Run(
        *(
            statistics.median(getattr(run, name) for run in runs)
            for name in ("rate", "p50_ms", "p99_ms", "cpu_s", "client_cpu_s")
        )
    )


def ratios(ours: Sequence[Run], theirs: Sequence[Run]) -> list[float]:
    """Our rate over theirs, round by round, the smallest first."""
    return sorted(mine.rate / other.rate for mine, other in zip(ours, theirs, strict=True))


def cpu_ratios(ours: Sequence[Run], theirs: Sequence[Run]) -> list[float]:
    """Our CPU seconds over theirs, round by round, the smallest first."""
    return sorted(mine.cpu_s / other.cpu_s for mine, other in zip(ours, theirs, strict=True))


def spread(each: Sequence[float]) -> str:
    """Smallest / median / largest of what is in order."""
    return f"{each[0]:.2f} / {statistics.median(each):.2f} / {each[-1]:.2f}"


def cells(runs: Sequence[Run], beside: Sequence[Run] | None) -> list[str]:
    """ops/s, p50, p99, CPU s, and the ratio as smallest / median / largest."""
    run = middle(runs)
    found = [f"{run.rate:,.0f}", f"{run.p50_ms:.2f} ms", f"{run.p99_ms:.2f} ms", f"{run.cpu_s:.2f}"]
    if beside is None:
        return [*found, ""]
    return [*found, spread(ratios(runs, beside))]
