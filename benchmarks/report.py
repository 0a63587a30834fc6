"""How the figures become docs/benchmarks.md; what a person wrote below the mark is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

MARK = "<!-- Written by hand from here on: `make bench` keeps it. -->"
_HEAD = """# Benchmarks

`make bench` measured this and wrote everything above the mark near the end;
`make bench BENCH=--quick` shows the same in a minute, less exactly, and writes nothing. Runs of
what is compared alternate, and a figure is the median of its runs. All processes share one machine,
the client too: figures compare, they do not promise. Nothing gates on them.
"""


@dataclass
class Section:
    """One table and a sentence or two before it."""

    title: str
    text: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", self.text, ""]
        lines.append(f"| {' | '.join(self.columns)} |")
        lines.append(f"|{'|'.join(' --- ' for _ in self.columns)}|")
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines) + "\n"


def write(file: Path, machine: Sequence[tuple[str, str]], sections: Sequence[Section]) -> None:
    """Write the page anew down to the mark."""
    kept = f"{MARK}\n"
    if file.exists():
        _before, mark, after = file.read_text().partition(MARK)
        if mark:
            kept = mark + after
    where = Section("Machine", "", ("what", "value"), [*machine])
    parts = [_HEAD, where.markdown(), *(section.markdown() for section in sections), kept]
    file.write_text("\n".join(parts))
