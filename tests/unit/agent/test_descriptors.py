"""How many zones and clients have room under a limit of descriptors."""

import resource
from contextlib import suppress

import pytest

from quorate.protocol.storage import ZoneRefused
from quorate_agent.machine.descriptors import CLIENTS_MIN, FIXED, RESERVE, Descriptors
from quorate_link.descriptors import raise_limit


def test_zones_are_refused_before_they_take_what_links_and_clients_need() -> None:
    descriptors = Descriptors(256)
    cost = descriptors.of_zone(persistent=True)
    fitting = (256 - RESERVE - CLIENTS_MIN) // cost
    for number in range(fitting):
        descriptors.take_zone(f"zone-{number}", persistent=True)

    with pytest.raises(ZoneRefused, match=rf"needs {cost} .*of the 256 .*Way out: .*ulimit -Hn"):
        descriptors.take_zone("one-more", persistent=True)

    clients = 0
    while descriptors.take_client():
        clients += 1
    assert clients == 256 - RESERVE - fitting * cost >= CLIENTS_MIN


def test_a_zone_that_is_closed_leaves_its_room_to_another() -> None:
    descriptors = Descriptors(RESERVE + CLIENTS_MIN + 25)
    descriptors.take_zone("first", persistent=True)
    with pytest.raises(ZoneRefused):
        descriptors.take_zone("second", persistent=True)

    descriptors.give_back("second")
    with pytest.raises(ZoneRefused):
        descriptors.take_zone("second", persistent=True)
    descriptors.give_back("first")

    descriptors.take_zone("second", persistent=True)


@pytest.mark.parametrize("limit", [256, 1024, 4096, 20_000, 1 << 20])
def test_links_zones_and_clients_together_keep_within_the_limit(limit: int) -> None:
    """At most so many links are accepted as zones and clients leave room for."""
    descriptors, persistent = Descriptors(limit), 0
    with suppress(ZoneRefused):
        while True:
            descriptors.take_zone(f"zone-{persistent}", persistent=True)
            persistent += 1
    clients = 0
    while descriptors.take_client():
        clients += 1

    of_zones = persistent * descriptors.of_zone(persistent=True)
    assert FIXED + descriptors.links + descriptors.strangers + of_zones + clients <= limit
    assert clients >= CLIENTS_MIN


def test_a_higher_limit_has_room_for_the_links_of_more_agents() -> None:
    limits = (256, 4096, 1 << 20)
    assert [Descriptors(limit).links for limit in limits] == [48, 256, 4096]
    assert [Descriptors(limit).strangers for limit in limits] == [12, 64, 512]


def test_a_zone_in_memory_needs_only_a_socket() -> None:
    assert Descriptors(256).of_zone(persistent=False) == 1


@pytest.mark.parametrize(("limit", "zones"), [(4096, 150), (20_000, 200), (1 << 20, 3000)])
def test_hundreds_of_zones_have_room_under_a_usual_limit(limit: int, zones: int) -> None:
    descriptors = Descriptors(limit)

    for number in range(zones):
        descriptors.take_zone(f"zone-{number}", persistent=True)

    assert descriptors.tables >= 10


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), hard))
        limit = raise_limit()

        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, hard)
        assert limit == (hard if hard != resource.RLIM_INFINITY else 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
