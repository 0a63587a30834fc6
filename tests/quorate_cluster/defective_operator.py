"""An operator with a defect planted in its master: nothing that its timer wants is decided."""

import sys

PLANTED = """
import sys

from quorate.protocol.master import Master
from quorate_operator.__main__ import main


def tick(self, now):
    raise KeyError("planted")


Master.tick = tick
sys.exit(main())
"""


def defective_operator(*arguments: str) -> list[str]:
    """Its command line."""
    return [sys.executable, "-P", "-c", PLANTED, *arguments]
