"""An operator that stops between its check of the lease and what it sends: on SIGUSR1.

The check comes before the sending, and a process may stand still between any two lines.  When it
goes on it sends what it was about to send, and before that the worst that a master can say: that
each zone is deleted.
"""

import sys

PLANTED = """
import os
import signal
import sys

from quorate.protocol.messages import ZoneGone
from quorate_operator.__main__ import main
from quorate_operator.mastership.runner import Runner

asked = []
send = Runner._send


def stop_then_send(self, sends):
    if asked and sends:
        asked.clear()
        term = self._master.master_term
        gone = [(node, ZoneGone(term, uid)) for node in self._links for uid in self._zones]
        os.kill(os.getpid(), signal.SIGSTOP)
        sends = [*gone, *sends]
        print(f"late words: {len(gone)} of term {term}", file=sys.stderr)
    send(self, sends)


Runner._send = stop_then_send
signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
sys.exit(main())
"""


def late_operator(*arguments: str) -> list[str]:
    """Its command line."""
    return [sys.executable, "-P", "-c", PLANTED, *arguments]
