"""What agents say to each other of their clients: commands that one forwards to another.

They are part of `messages.Message` and travel on the same links.
"""

import msgspec

Words = tuple[bytes, ...]
"""A command: its name, then its arguments."""


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """Execute this for a client of mine: a command, or with `transaction` the commands of one, none
    of which may happen unless the rows of `watched` (key, term, counter) are still the same; with
    term 0 there must be none, and have been none since that counter.

    (process, number) names the request: asked again, it gets the answer that it got first.  Its
    client is told that nobody knows `left_ms` after this was sent, and it was sent when the newest
    heartbeat known of its receiver was that of `heard_ms`, by the receiver's clock: later than
    `left_ms` after that it is not executed."""

    zone: str
    process: str
    number: int
    heard_ms: int
    left_ms: int
    resp3: bool
    commands: tuple[Words, ...]
    transaction: bool = False
    watched: tuple[tuple[bytes, int, int], ...] = ()


class Forwarded(msgspec.Struct, frozen=True, array_like=True, tag=57):
    """The reply to a Forward, as the client would have got it."""

    zone: str
    process: str
    number: int
    reply: bytes
