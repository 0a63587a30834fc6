"""What a history is made of: one command on one key, from its call to its answer."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """One command of one client.  Times are nanoseconds of one clock.

    `kind`: GET, SET, SETNX, DEL, INCR, or FLUSH, which removes the key and says nothing of it.
    `argument`: what SET and SETNX write.  `result`: the value of GET, None when there was none;
    "OK" of SET and SETNX, None when SETNX found the key there; the number of DEL and INCR.
    `end_ns` None: the outcome is unknown; it may take effect any time after `call_ns`, or never.
    """

    client: int
    kind: str
    key: str
    argument: str | None
    result: str | None
    call_ns: int
    end_ns: int | None

    @property
    def is_known(self) -> bool:
        """Whether the client knows what became of it."""
        return self.end_ns is not None

    def line(self) -> str:
        """As the Go program reads it, without the end of the line."""
        return json.dumps(
            {
                "client": self.client,
                "kind": self.kind,
                "key": self.key,
                "argument": self.argument,
                "result": self.result if self.is_known else None,
                "call": self.call_ns,
                "return": self.end_ns,
                "outcome": "ok" if self.is_known else "unknown",
            }
        )
