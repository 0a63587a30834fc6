"""An operator that stops between its check of the lease and what it sends: on SIGUSR1.

The check comes before the sending, and a process may stand still between any two lines.  When it
goes on it sends what it was about to send, and before that the worst that a master can say: that
each zone is deleted.
"""

import os
import signal
import sys
from collections.abc import Sequence
from unittest.mock import patch

from quorate.protocol.messages.master import ZoneGone
from quorate.protocol.messages.message import Message
from quorate_operator.__main__ import main
from quorate_operator.mastership.agent_links import AgentLinks
from quorate_operator.mastership.runner import Runner

_send, _start = AgentLinks.send, Runner.start


def late_operator(*arguments: str) -> list[str]:
    """Its command line."""
    return [sys.executable, "-P", __file__, *arguments]


def _run() -> int:
    asked: list[bool] = []
    runners: list[Runner] = []

    def noted_start(runner: Runner) -> None:
        runners.append(runner)
        _start(runner)

    def stop_then_send(links: AgentLinks, sends: Sequence[tuple[str, Message]]) -> None:
        if asked and sends:
            asked.clear()
            [runner] = runners
            assert runner.master is not None
            term = runner.master.master_term
            zones = runner.known_zones()
            gone = [(node, ZoneGone(term, uid)) for node in links.by_node for uid in zones]
            os.kill(os.getpid(), signal.SIGSTOP)
            sends = [*gone, *sends]
            print(f"late words: {len(gone)} of term {term}", file=sys.stderr)
        _send(links, sends)

    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))
    with (
        patch.object(Runner, "start", noted_start),
        patch.object(AgentLinks, "send", stop_then_send),
    ):
        return main()


if __name__ == "__main__":
    sys.exit(_run())
