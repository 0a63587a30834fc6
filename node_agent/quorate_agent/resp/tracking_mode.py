"""What a connection asked for with CLIENT TRACKING: which of its reads it caches, who is told."""


class TrackingMode:
    """The options of one connection that tracks."""

    __slots__ = (
        "broadcast",
        "caching",
        "is_broken",
        "noloop",
        "optin",
        "optout",
        "prefixes",
        "redirect",
    )

    def __init__(self) -> None:
        self.redirect = 0  # the connection that is told instead; 0: itself
        self.is_broken = False  # that one is gone
        self.broadcast = False  # told of every write to a key that begins with one of `prefixes`
        self.prefixes: list[bytes] = []
        self.optin = False  # only what follows CLIENT CACHING YES is cached
        self.optout = False  # all is cached but what follows CLIENT CACHING NO
        self.noloop = False  # not told of its own writes
        self.caching = False  # the next command is such an exception

    @property
    def keeps(self) -> bool:
        """Whether what the next command reads may be cached."""
        if self.optin or self.optout:
            return self.caching is self.optin
        return True

    def covers(self, key: bytes) -> bool:
        """Whether a broadcasting connection is told of writes to `key`."""
        return any(map(key.startswith, self.prefixes))
