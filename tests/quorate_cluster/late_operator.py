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

from quorate.protocol.messages.master import ZoneGone
from quorate_operator.__main__ import main
from quorate_operator.mastership.agent_links import AgentLinks
from quorate_operator.mastership.runner import Runner

asked, runners = [], []
send, start = AgentLinks.send, Runner.start


def noted_start(self):
    runners.append(self)
    start(self)


def stop_then_send(self, sends):
    if asked and sends:
        asked.clear()
        [runner] = runners
        term = runner._master.master_term
        gone = [(node, ZoneGone(term, uid)) for node in self.by_node for uid in runner._zones]
        os.kill(os.getpid(), signal.SIGSTOP)
        sends = [*gone, *sends]
        print(f"late words: {len(gone)} of term {term}", file=sys.stderr)
    send(self, sends)


Runner.start = noted_start
AgentLinks.send = stop_then_send
signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
sys.exit(main())
"""


def late_operator(*arguments: str) -> list[str]:
    """Its command line."""
    return [sys.executable, "-P", "-c", PLANTED, *arguments]
