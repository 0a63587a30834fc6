"""Which errors are a stock client's own."""

import pytest
from redis.cache import CacheConfig, CacheEntry, CacheEntryStatus, CacheFactory, CacheKey

from quorate_cluster.client_errors import is_of_its_cache

ENTRY = CacheEntry(CacheKey("GET", ("k",), ("GET", "k")), b"", CacheEntryStatus.IN_PROGRESS, None)


def test_a_cache_that_is_emptied_while_something_is_noted_fails_over_itself() -> None:
    cache = CacheFactory(CacheConfig()).get_cache()
    cache.set(ENTRY)
    cache.flush()

    with pytest.raises(ValueError, match="does not belong to the cache") as caught:
        cache.eviction_policy.touch(ENTRY.cache_key)

    assert is_of_its_cache(caught.value)


def test_a_cache_that_is_emptied_while_it_is_looked_through_fails_over_itself() -> None:
    cache = CacheFactory(CacheConfig()).get_cache()

    class Emptying(tuple[str, ...]):
        """Keys that are compared while another thread empties the cache."""

        def __contains__(self, key: object) -> bool:
            cache.flush()
            return False

    for keys in (Emptying(("k",)), ("l",)):
        key = CacheKey("GET", keys, ("GET", *keys))
        cache.set(CacheEntry(key, b"", CacheEntryStatus.VALID, None))

    with pytest.raises(RuntimeError) as caught:
        cache.delete_by_redis_keys(["m"])

    assert is_of_its_cache(caught.value)


def test_a_reply_that_is_no_number_is_not_of_the_cache() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("1.5")
    assert not is_of_its_cache(caught.value)
