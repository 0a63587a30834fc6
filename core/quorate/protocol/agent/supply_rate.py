"""Limits the bytes that an agent supplies per second to other agents' copies, over all its zones.

Pieces of full copies wait until the limit allows them.  Deltas (updates, and rows of single keys)
are sent at once, because a term may not serve before them.  They are charged all the same, so full
copies wait for them.  Zones with waiting pieces take turns, one piece each.
"""

from typing import Protocol

from quorate.facts.time import Now


class Supplier(Protocol):
    """The part of a zone that has pieces to send."""

    @property
    def has_pieces(self) -> bool:
        """Whether a piece waits."""

    def send_piece(self) -> int:
        """Send the piece that has waited longest; return its bytes."""


class SupplyRate:
    """The limit of one agent: a token bucket that holds a quarter of a second."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._room = 0
        self._at_ms = 0
        self._waiting: dict[Supplier, None] = {}  # in the order of their turns

    def charge(self, count: int, now: Now) -> None:
        """Count bytes that were sent without waiting."""
        self._refill(now)
        self._room -= count

    def wait(self, supplier: Supplier, now: Now) -> None:
        """Have the supplier's pieces sent, now or when the limit allows it."""
        self._waiting[supplier] = None
        self.supply(now)

    def forget(self, supplier: Supplier) -> None:
        """Send nothing more of the supplier, because its zone is closed."""
        self._waiting.pop(supplier, None)

    def supply(self, now: Now) -> None:
        """Send waiting pieces as the limit allows."""
        self._refill(now)
        while self._waiting and self._room > 0:
            supplier = next(iter(self._waiting))
            del self._waiting[supplier]
            self._room -= supplier.send_piece()
            if supplier.has_pieces:
                self._waiting[supplier] = None

    def _refill(self, now: Now) -> None:
        passed_ms = now.boot_ms - self._at_ms
        self._at_ms = now.boot_ms
        self._room = min(self._room + self._bytes_per_s * passed_ms // 1000, self._bytes_per_s // 4)
