"""How the figures become docs/benchmarks.md; what a person wrote below the mark is kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
MARK = "<!-- Written by hand from here on: `make bench` keeps it. -->"
_HEAD = """# Benchmarks

`make bench` and `make overload` measured this and wrote everything above the mark near the end;
`make bench BENCH=--quick` shows the same in a few minutes, less exactly, and writes nothing. Runs
of what is compared alternate, and a figure is the median of its runs. All processes share one
machine, the client too: figures compare, they do not promise. Nothing gates on them.
"""


@dataclass(frozen=True)
class Goal:
    """The wanted value of one figure, and whether it is met."""

    what: str
    wanted: str
    figure: str
    is_met: bool


@dataclass
class Section:
    """One table and a sentence or two before it, and what was wanted of its figures."""

    title: str
    text: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    measured: str = ""
    """When, and how busy the machine was before."""

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def at_least(self, what: str, figure: float, wanted: float, unit: str = "") -> str:
        """Note a goal; the words of its cell."""
        return self._judge(what, "at least", figure, wanted, wanted - figure, unit)

    def at_most(self, what: str, figure: float, wanted: float, unit: str = "") -> str:
        """Note a goal; the words of its cell."""
        return self._judge(what, "at most", figure, wanted, figure - wanted, unit)

    def _judge(
        self, what: str, bound: str, figure: float, wanted: float, missed: float, unit: str
    ) -> str:
        limit = f"{wanted:g}{unit}"
        is_met = missed <= 0
        digits = 0 if wanted >= 20 or isinstance(figure, int) else 2
        self.goals.append(Goal(what, f"{bound} {limit}", f"{figure:.{digits}f}{unit}", is_met))
        return limit if is_met else f"{limit}, missed by {missed:.{digits}f}{unit}"

    def markdown(self) -> str:
        text = " ".join(filter(None, [self.text, self.measured]))
        lines = [f"## {self.title}", ""]
        if text:
            lines += [text, ""]
        lines.append(f"| {' | '.join(self.columns)} |")
        lines.append(f"|{'|'.join(' --- ' for _ in self.columns)}|")
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        if self.goals:
            lines += ["", "| goal | wanted | found | |", "| --- | --- | --- | --- |"]
            lines += [
                f"| {goal.what} | {goal.wanted} | {goal.figure} | {_met(goal)} |"
                for goal in self.goals
            ]
        return "\n".join(lines) + "\n"


def _met(goal: Goal) -> str:
    return "met" if goal.is_met else "**missed**"


def write(file: Path, machine: Sequence[tuple[str, str]], sections: Sequence[Section]) -> None:
    """Write the page anew down to the mark; sections that were not measured stay as they are."""
    kept = f"{MARK}\n"
    old: list[str] = []
    if file.exists():
        before, mark, after = file.read_text().partition(MARK)
        if mark:
            kept = mark + after
        old = re.split(r"^(?=## )", before, flags=re.MULTILINE)[1:]
    where = Section("Machine", "", ("what", "value"), [*machine])
    new = {_title(part): part for part in (each.markdown() for each in (where, *sections))}
    parts = [new.pop(_title(part), part) for part in old]
    file.write_text(
        "\n".join([_HEAD, *(part.strip() + "\n" for part in [*parts, *new.values()]), kept])
    )


def _title(part: str) -> str:
    return part.partition("\n")[0]
