"""Messages among agents about clients: one agent forwards a command to another.

They are part of `message.Message` and use the same links.
"""

import msgspec

Words = tuple[bytes, ...]
"""A command: its name, then its arguments."""


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """Asks the receiver to execute a command for a client of the sender.

    With `transaction`, `commands` are those of one transaction.  It happens only if the rows of
    `watched` (key, term, counter) are unchanged.  Term 0 means: there is no row, and there has been
    none since that counter.

    (process, number) identifies the request: a repeated request gets the first reply again.

    `heard_ms` is when the receiver sent the newest heartbeat that the sender has received from it,
    by the receiver's boot clock.  `left_ms` is how long the client still waited when this was sent.
    The receiver does not execute the command once its boot clock exceeds the sum.  With 0 it never
    does.

    `external`: the client came through an external listener and is given external addresses.
    """

    zone: str
    process: str
    number: int
    resp3: bool
    commands: tuple[Words, ...]
    transaction: bool = False
    watched: tuple[tuple[bytes, int, int], ...] = ()
    heard_ms: int = 0
    left_ms: int = 0
    external: bool = False


class Forwarded(msgspec.Struct, frozen=True, array_like=True, tag=57):
    """The reply to a Forward, as the client would have received it."""

    zone: str
    process: str
    number: int
    reply: bytes
