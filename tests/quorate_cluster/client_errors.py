"""What redis-py's cluster client raises when the cluster, or the machine, lets it down."""

import re
from collections.abc import Iterable

from redis.exceptions import RedisClusterException, RedisError

CLIENT_ERRORS = (RedisError, RedisClusterException, OSError)
"""The second, of a client that reaches nobody who tells it the slots, is no RedisError."""

_DOCUMENTED = re.compile(
    r"ClusterDownError|ResponseError: UNKNOWN|(Connection|Timeout)Error|ClusterError"
)


def text_of(error: BaseException) -> str:
    """Its kind and what it says."""
    return f"{type(error).__name__}: {error}"


def undocumented(texts: Iterable[str]) -> list[str]:
    """Those that docs/clients.md does not say of a loss: nobody may be told them, whatever was
    lost."""
    return [text for text in texts if not _DOCUMENTED.match(text)]
