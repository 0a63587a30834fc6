"""Whether a history is linearizable, as porcupine judges it."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from quorate_porcupine.build import build_judge
from quorate_porcupine.operations import Operation

_JUDGE_S_MAX = 300.0
_VERDICTS = {0: "ok", 1: "illegal", 3: "undecided"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """`word`: ok, illegal, or undecided (the search was given up); `text`: all that was said."""

    word: str
    text: str

    @property
    def is_linearizable(self) -> bool:
        return self.word == "ok"


def judge(history: Iterable[Operation]) -> Verdict:
    """Judge operations in any order."""
    return judge_lines("".join(operation.line() + "\n" for operation in history))


def judge_lines(lines: str) -> Verdict:
    """Judge a history as text; ValueError when it is none, with the number of the line."""
    done = subprocess.run(
        [str(build_judge())], input=lines, capture_output=True, text=True, timeout=_JUDGE_S_MAX
    )
    word = _VERDICTS.get(done.returncode)
    if word is None or not done.stdout.startswith(word):
        raise ValueError(f"the judge ended with {done.returncode}: {done.stderr[-2000:].strip()}")
    return Verdict(word, done.stdout.rstrip())
