"""A request to end the process: SIGTERM and SIGINT as an event."""

import asyncio
import signal


class Stopping(asyncio.Event):
    """Set by the first of these signals, from `listen` on."""

    def listen(self) -> None:
        """Handle the signals, even if other code has taken them over meanwhile."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.set)
