"""Where a command says what it does."""

import os
import sys

from rich.console import Console


class Teller(Console):
    """A console whose reader may leave: a command that changes something goes on without it.

    `quorate dev up | head -1` would otherwise end between the first agent and the second.
    """

    def on_broken_pipe(self) -> None:
        """Say the rest to nobody."""
        self.quiet = True
        # What Python still writes at its end must not fail, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
