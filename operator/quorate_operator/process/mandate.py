"""Whether a process may act as the master, and the error if it no longer can."""

from typing import Protocol

from quorate.facts.errors import QuorateError


class CannotLead(QuorateError):
    """Something that a master needs has ended in this process, so it must not seem to lead."""


class Mandate(Protocol):
    """Tells whether this process may act as the master at this moment."""

    def holds(self) -> bool:
        """Return whether it may.  Called before every write and every publication; cheap."""


class Always:
    """The mandate of the embedded operator, which has no rival: it holds its folder's lock."""

    def holds(self) -> bool:
        """Return True."""
        return True
