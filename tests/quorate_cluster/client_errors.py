"""What redis-py's cluster client raises when the cluster, or the machine, lets it down."""

import re
import traceback
from collections.abc import Iterable

from redis.exceptions import RedisClusterException, RedisError

CLIENT_ERRORS = (RedisError, RedisClusterException, OSError)
"""The second, of a client that reaches nobody who tells it the slots, is no RedisError."""

_DOCUMENTED = re.compile(
    r"ClusterDownError|ResponseError: UNKNOWN|(Connection|Timeout)Error|ClusterError"
)

_OF_ITS_CACHE: dict[str, tuple[type[Exception], ...]] = {
    "redis.cache": (KeyError, ValueError, RuntimeError),
    "redis.connection": (AttributeError,),
}


def is_of_its_cache(error: Exception) -> bool:
    """Whether redis-py's cache failed over itself.

    A connection that ends empties the cache of all, which no lock of the others keeps it from: also
    one of a node that is gone, when Python's garbage collection finds it, in whatever thread that
    is.  What another read is being noted as, or looked up, is then missing."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, _OF_ITS_CACHE.get(frame.f_globals["__name__"], ()))


def text_of(error: BaseException) -> str:
    """Its kind and what it says."""
    return f"{type(error).__name__}: {error}"


def undocumented(texts: Iterable[str]) -> list[str]:
    """Those that docs/clients.md does not say of a loss: nobody may be told them, whatever was
    lost."""
    return [text for text in texts if not _DOCUMENTED.match(text)]
