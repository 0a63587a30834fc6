"""Which cases a folder of case files holds.

A case file is JSON; its stem is its kind.  Every object in one of its top-level lists is a case of
that list (`section`); one in a list called like the kind, or `cases`, is named alone.
"""

import json
import os
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
    about = document.get("_about", {})
    lists = {**{k: v for k, v in about.items() if isinstance(v, list)}, **document}
    cases: list[Case] = []
    for section, entries in lists.items():
        if not isinstance(entries, list):
            continue
        names: dict[str, int] = {}
        for number, facts in enumerate(entries):
            if not isinstance(facts, dict):
                continue
            name = str(facts.get("name", number))
            names[name] = names.get(name, 0) + 1
            suffix = f"-{names[name]}" if names[name] > 1 else ""
            cases.append(Case(kind, section, name + suffix, facts))
    return cases or [Case(kind, "", "whole-file", document)]
