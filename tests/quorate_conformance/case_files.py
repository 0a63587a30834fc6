"""Which cases a folder of case files holds.

A case file is JSON; its stem is its kind.  Every object in one of its top-level lists is a case of
that list (`section`); one in a list called like the kind, or `cases`, is named alone.  A top-level
object is a section as well: if it has lists of objects, these are its cases, and its other objects
one each; else it is one case itself.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWN_FOLDER = Path(__file__).parents[1] / "conformance" / "cases"


@dataclass(frozen=True, slots=True)
class Case:
    """One case: `facts` as the file has them, `name` unique in its section."""

    kind: str
    section: str
    name: str
    facts: dict[str, Any]

    @property
    def id(self) -> str:
        """What the test is called."""
        section = "" if self.section in ("cases", self.kind) else f"{self.section}-"
        return f"{self.kind}-{section}{self.name}"


def case_folder() -> Path:
    """The folder named by QUORATE_CONFORMANCE, else the project's own."""
    return Path(os.environ.get("QUORATE_CONFORMANCE") or OWN_FOLDER)


def read_cases(folder: Path) -> list[Case]:
    """All cases of all files, in order.  A folder without a case file is an error, not no work."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise FileNotFoundError(
            f"QUORATE_CONFORMANCE={folder}: no case file (*.json) there; name a folder that has one"
        )
    return [case for file in files for case in _cases_of(file)]


def _cases_of(file: Path) -> list[Case]:
    kind, document = file.stem, json.loads(file.read_text())
    about = document.pop("_about", {})
    cases: list[Case] = []
    names: dict[tuple[str, str], int] = {}
    lists = {k: v for k, v in about.items() if isinstance(v, list)}
    for section, entries in {**lists, **document}.items():
        for name, facts in _entries(entries):
            count = names[section, name] = names.get((section, name), 0) + 1
            suffix = f"-{count}" if count > 1 else ""
            cases.append(Case(kind, section, name + suffix, facts))
    return cases


def _entries(section: object) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(section, list):
        for number, facts in enumerate(section):
            if isinstance(facts, dict):
                yield str(facts.get("name", number)), facts
    elif isinstance(section, dict):
        lists = [value for value in section.values() if isinstance(value, list)]
        if any(isinstance(each, dict) for value in lists for each in value):
            yield from _inner(section)
        else:
            yield "whole", section


def _inner(section: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for field, value in section.items():
        if isinstance(value, list):
            for name, facts in _entries(value):
                yield (name if field in ("cases", "rows") else f"{field}-{name}"), facts
        elif isinstance(value, dict):
            yield field, value
