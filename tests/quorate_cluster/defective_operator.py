"""Operators with a defect planted in their masters: nothing that a timer wants is decided."""

import sys
from collections.abc import Callable
from pathlib import Path

PLANTED = """
import sys

from quorate.protocol.master.master import Master
from quorate_operator.__main__ import main


def tick(self, now):
    raise KeyError("planted")


Master.tick = tick
sys.exit(main())
"""


def defective_operator(*arguments: str) -> list[str]:
    """Its command line."""
    return [sys.executable, "-P", "-c", PLANTED, *arguments]


POISONED = """
import sys
from pathlib import Path

from quorate.protocol.master.master import Master
from quorate_operator.__main__ import main

file = Path(sys.argv.pop(1))
tick = Master.tick


def poisoned(self, now):
    if file.exists() and any(zone.record.name == "poison" for zone in self.zones.values()):
        raise KeyError("planted")
    tick(self, now)


Master.tick = poisoned
sys.exit(main())
"""


def poisoned_operator(file: Path) -> Callable[..., list[str]]:
    """The command line of one whose masters fail that lead a zone `poison`, while `file` exists."""
    return lambda *arguments: [sys.executable, "-P", "-c", POISONED, str(file), *arguments]
