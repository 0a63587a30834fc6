"""Consoles of commands."""

import os
import sys

from rich.console import Console


class PlainConsole(Console):
    """A console that prints text as it is: a key or a path may look like markup."""

    def __init__(self, *, soft_wrap: bool = False, stderr: bool = False) -> None:
        super().__init__(
            highlight=False, markup=False, emoji=False, soft_wrap=soft_wrap, stderr=stderr
        )


class Teller(PlainConsole):
    """A console whose reader may leave: a command that changes something continues without it.

    Otherwise `quorate dev up | head -1` would end between the first agent and the second.
    """

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        # Python still writes at exit, and that must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
