"""A connection's CLIENT TRACKING: which reads it caches, and who gets the invalidations."""


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
        self.redirect = 0  # the connection that gets the invalidations; 0: itself
        self.is_broken = False  # that connection is gone
        self.broadcast = False  # told of every write to a key that begins with one of `prefixes`
        self.prefixes: list[bytes] = []
        self.optin = False  # only what follows CLIENT CACHING YES is cached
        self.optout = False  # everything is cached except what follows CLIENT CACHING NO
        self.noloop = False  # not told of its own writes
        self.caching = False  # CLIENT CACHING applies to the next command

    @property
    def keeps(self) -> bool:
        """Whether what the next command reads may be cached."""
        if self.optin or self.optout:
            return self.caching is self.optin
        return True

    def covers(self, key: bytes) -> bool:
        """Return whether a broadcasting connection is told of writes to `key`."""
        return any(map(key.startswith, self.prefixes))
