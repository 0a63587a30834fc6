"""The commands of a document's ```sh blocks, and the output that a ```text block behind one shows.

    ```sh
    kubectl get zones        # a comment
    ```
    ```text
    NAME      CLUSTER   …
    ```

Each line of the output must occur, in this order, in what the command prints.  Runs of spaces count
as one, and … stands for anything.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^```(\w*)\s*$")
_HERE = re.compile(r"<<-?'?(\w+)'?")


class Command(NamedTuple):
    """One command with the line of the document on which it begins."""

    line: int
    text: str
    output: tuple[str, ...] = ()


def commands_of(document: str) -> list[Command]:
    """Every command of the document, in order."""
    found: list[Command] = []
    block: list[tuple[int, str]] = []
    kind = ""
    is_behind_commands = False
    for number, line in enumerate(document.splitlines(), 1):
        fence = _FENCE.match(line)
        if kind and line.rstrip() == "```":
            if kind == "sh":
                found += _commands(block)
            elif kind == "text" and is_behind_commands:
                last = found.pop()
                found.append(last._replace(output=tuple(text for _, text in block)))
            is_behind_commands = kind == "sh"
            kind = ""
        elif not kind and fence is not None:
            kind, block = fence[1] or "text", []
        elif kind:
            block.append((number, line))
        elif line.strip():
            is_behind_commands = False
    return found


def _commands(block: Sequence[tuple[int, str]]) -> list[Command]:
    found: list[Command] = []
    begun = 0
    lines: list[str] = []
    until = ""
    for number, line in block:
        if not lines and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun = begun if lines else number
        lines.append(line)
        here = _HERE.search(line)
        if until:
            until = "" if line.strip() == until else until
        elif here is not None:
            until = here[1]
        if not until and not line.endswith("\\"):
            found.append(Command(begun, "\n".join(lines)))
            lines = []
    assert not lines, f"line {begun}: the command does not end: {lines}"
    return found


def run(
    command: Command, folder: Path, environment: Mapping[str, str], timeout_s: float = 120
) -> str:
    """What the command printed; AssertionError when it failed or printed another thing."""
    done = subprocess.run(
        ["sh", "-euc", command.text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    told = f"line {command.line}: {command.text}\n{done.stdout}{done.stderr}"
    assert done.returncode == 0, f"{told}ended with {done.returncode}"
    missing = first_missing(command.output, done.stdout)
    assert not missing, f"{told}the document shows, and it did not print:\n{missing}"
    return done.stdout


def first_missing(output: Sequence[str], printed: str) -> str:
    """The first line of `output` that does not follow the ones before it; empty where all do."""
    lines = iter(_plain(line) for line in printed.splitlines())
    for wanted in filter(None, map(_plain, output)):
        parts = [re.escape(part) for part in wanted.split("…")]
        pattern = re.compile(".*".join(parts))
        if not any(pattern.fullmatch(line) for line in lines):
            return wanted
    return ""


def _plain(line: str) -> str:
    return " ".join(line.split())
