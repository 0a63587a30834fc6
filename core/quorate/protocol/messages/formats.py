"""The frame formats that this build speaks, and the format that introduced each message.

The two sides of a link speak the highest format that both know.  The handshake chooses it, and the
link sends no message that this format lacks.  New fields at the end of a message need no new
format.  All rules: docs/protocol.md, section 3, "Versions that mix".
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from quorate.protocol.messages.handshake import FORMAT_LOWEST, FORMAT_VERSION
from quorate.protocol.messages.master import CopySummaries
from quorate.protocol.messages.tools import (
    AnswerLater,
    AskAside,
    AskColumns,
    AskPaced,
    AskUpdates,
    AskValues,
    CopyColumns,
    HandedOver,
    HandOver,
    KeyRepaired,
    Paced,
    RepairKey,
    RestoreRows,
    RowsRestored,
    SetAside,
    UpdatesTold,
    Values,
)


class Formats(NamedTuple):
    """The formats that one side speaks: all from `lowest` to `highest`."""

    lowest: int
    highest: int

    def common(self, other: "Formats") -> int | None:
        """Return the highest format that both sides speak; None if there is none."""
        highest = min(self.highest, other.highest)
        return highest if highest >= max(self.lowest, other.lowest) else None

    def __str__(self) -> str:
        """Return words for a sentence."""
        if self.lowest == self.highest:
            return f"format version {self.lowest}"
        return f"format versions {self.lowest} to {self.highest}"


SPOKEN: Final = Formats(FORMAT_LOWEST, FORMAT_VERSION)

SINCE: Final[Mapping[type, int]] = {
    CopySummaries: 3,
    AskAside: 4,
    SetAside: 4,
    AskValues: 4,
    Values: 4,
    RepairKey: 5,
    KeyRepaired: 5,
    HandOver: 5,
    HandedOver: 5,
    AskUpdates: 6,
    UpdatesTold: 6,
    RestoreRows: 6,
    RowsRestored: 6,
    AskColumns: 7,
    CopyColumns: 7,
    AskPaced: 8,
    Paced: 8,
    AnswerLater: 8,
}
"""Message -> the format that introduced it.  Messages that are not listed exist since
FORMAT_LOWEST.  A message is sent only to sides that speak its format."""


def unknown_in(version: int) -> frozenset[type]:
    """Return the messages that a side which speaks format `version` does not know."""
    return frozenset(message for message, since in SINCE.items() if since > version)
