"""What a history is made of: commands and transactions, each from its call to its answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a transaction.

    `kind`, `argument` and `result` as those of Operation.  UNCHANGED is what WATCH demands and
    comes first: the transaction takes effect only where the key still holds `result`.
    """

    kind: str
    key: str
    argument: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One command of one client, or a transaction.  Times are nanoseconds of one clock.

    `kind`: GET, SET, SETNX, DEL, INCR, INCRBY, RPUSH, LRANGE (the whole list), FLUSH, which removes
    the key and says nothing of it, or EXEC, whose `steps` take effect at one moment.
    `argument`: what SET, SETNX and RPUSH write, how much INCRBY adds.  `result`: the value of GET,
    None when there was none; "OK" of SET and SETNX, None when SETNX found the key there; the number
    of DEL, INCR, INCRBY and RPUSH; the words of LRANGE with blanks between them.
    `end_ns` None: the outcome is unknown; it may take effect any time after `call_ns`, or never.
    What was told to have done nothing is in no history: who sees it sees what nobody wrote.
    """

    client: int
    kind: str
    key: str
    argument: str | None
    result: str | None
    call_ns: int
    end_ns: int | None
    steps: tuple[Step, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the client knows what became of it."""
        return self.end_ns is not None

    def line(self) -> str:
        """As the Go program reads it, without the end of the line."""
        told: dict[str, object] = {
            "client": self.client,
            "kind": self.kind,
            "key": self.key,
            "argument": self.argument,
            "result": self.result if self.is_known else None,
            "call": self.call_ns,
            "return": self.end_ns,
            "outcome": "ok" if self.is_known else "unknown",
        }
        if self.steps:
            told["steps"] = [self._told(step) for step in self.steps]
        return json.dumps(told)

    def _told(self, step: Step) -> dict[str, str | None]:
        says = self.is_known or step.kind == "UNCHANGED"
        return {
            "kind": step.kind,
            "key": step.key,
            "argument": step.argument,
            "result": step.result if says else None,
        }


def transaction(
    client: int, steps: Sequence[Step], call_ns: int, end_ns: int | None = None
) -> Operation:
    """The operation that a transaction is."""
    return Operation(client, "EXEC", "", None, None, call_ns, end_ns, tuple(steps))
