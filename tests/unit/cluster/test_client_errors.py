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


@pytest.mark.parametrize("text", ["-", "1.5"])
def test_a_reply_that_is_no_number_is_not_of_the_cache(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int(text)
    assert not is_of_its_cache(caught.value)
