"""A part of a transaction across partitions, or its decision, as the partition's primary knows it.

transactions/parts.py decides what becomes of it; the role keeps it (`Primary.parts`).
"""

from quorate.protocol.messages.transactions import COORDINATOR, Decide, Decision, FinishPart, Part
from quorate.protocol.settings import ProtocolSettings


class OpenPart:
    """One part or decision that has a row in the partition.

    (term, counter) identify the update that prepared it.  `left`, of a decision: the parts that
    have not reported that they are finished, and COORDINATOR until it knows the outcome.
    """

    __slots__ = ("asked_ms", "counter", "left", "since_ms", "state", "term", "told")

    def __init__(self, term: int, counter: int, state: Part | Decision, now_ms: int) -> None:
        self.term = term
        self.counter = counter
        self.since_ms = now_ms
        self.asked_ms = -1
        self.told = ("", 0)  # (node, time in boot ms) of the last reply
        self.left: dict[int, tuple[int, int]] = {}
        self.state = state
        if isinstance(state, Decision):
            self.decide(state)

    def decide(self, decision: Decision) -> None:
        """Turn the part into the decision to commit."""
        self.state = decision
        self.left = {COORDINATOR: (0, 0)}
        for partition, term, counter in decision.others:
            self.left[partition] = (term, counter)

    def is_named(self, ask: Decide | FinishPart) -> bool:
        """Return whether the message names this very part."""
        return (self.term, self.counter) == (ask.term, ask.counter)

    def is_due(self, now_ms: int, settings: ProtocolSettings) -> bool:
        """Return whether to ask or tell again; if so, note that it is done now."""
        if self.asked_ms >= 0 and now_ms - self.asked_ms < settings.step_retry_ms:
            return False
        self.asked_ms = now_ms
        return True
