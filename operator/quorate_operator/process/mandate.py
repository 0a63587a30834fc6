"""Whether a process may act as the master, and how it says that it cannot any more."""

from typing import Protocol

from quorate.facts.errors import QuorateError


class CannotLead(QuorateError):
    """What a master needs has ended in this process: it must not stay one that seems to lead."""


class Mandate(Protocol):
    """Whether this process may act as the master, as of this very moment."""

    def holds(self) -> bool:
        """Asked before every write and every publication; cheap."""


class Always:
    """The mandate of who cannot have a rival: the embedded operator holds its folder's lock."""

    def holds(self) -> bool:
        """Yes."""
        return True
