"""What agents say to each other of their clients: commands that one forwards to another.

They are part of `message.Message` and travel on the same links.
"""

import msgspec

Words = tuple[bytes, ...]
"""A command: its name, then its arguments."""


class Forward(msgspec.Struct, frozen=True, array_like=True, tag=56):
    """Execute this for a client of mine: a command, or with `transaction` the commands of one, none
    of which may happen unless the rows of `watched` (key, term, counter) are still the same; with
    term 0 there must be none, and have been none since that counter.

    (process, number) names the request: asked again, it gets the answer that it got first.

    `heard_ms` is when the receiver sent the newest heartbeat that the sender had heard of it, by
    the receiver's boot clock; `left_ms`, for how long the client still waited when this was sent.
    When that clock shows more than the sum it is not executed; so it is with 0, always.

    `external`: the client came by an external listener and is told external addresses."""

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
    """The reply to a Forward, as the client would have got it."""

    zone: str
    process: str
    number: int
    reply: bytes
