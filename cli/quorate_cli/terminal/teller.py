"""Output of a command's progress."""

import os
import sys

from rich.console import Console


class Teller(Console):
    """A console whose reader may leave: a command that changes something continues without it.

    Otherwise `quorate dev up | head -1` would end between the first agent and the second.
    """

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        # Whatever Python still writes at exit must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
