"""When a process is asked to end: SIGTERM and SIGINT as an event."""

import asyncio
import signal


class Stopping(asyncio.Event):
    """Set by the first of these signals, from `listen` on."""

    def listen(self) -> None:
        """Take the signals, also back from whoever took them meanwhile."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.set)
