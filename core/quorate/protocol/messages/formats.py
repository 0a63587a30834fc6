"""Which formats of frames this build speaks, and since which format a message is known.

The two sides of a link speak the highest format that both know: the handshake chooses it, and the
link sends no message that it does not have.  A message that gains fields at its end stays in its
format.  All rules: docs/protocol.md, section 3, "Versions that mix".
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.protocol.messages.handshake import FORMAT_LOWEST, FORMAT_VERSION


class Formats(NamedTuple):
    """The formats that one side speaks: all from `lowest` to `highest`."""

    lowest: int
    highest: int

    def common(self, other: "Formats") -> int | None:
        """The highest format that both speak; None: there is none."""
        highest = min(self.highest, other.highest)
        return highest if highest >= max(self.lowest, other.lowest) else None

    def __str__(self) -> str:
        """Words for a sentence."""
        if self.lowest == self.highest:
            return f"format version {self.lowest}"
        return f"format versions {self.lowest} to {self.highest}"


SPOKEN: Final = Formats(FORMAT_LOWEST, FORMAT_VERSION)

SINCE: Final[Mapping[type, int]] = {}
"""The format that a message came with; what is not here is known since FORMAT_LOWEST.  A message is
sent only to sides that speak its format."""


def unknown_in(version: int) -> frozenset[type]:
    """The messages that a side which speaks format `version` does not know."""
    return frozenset(message for message, since in SINCE.items() if since > version)
