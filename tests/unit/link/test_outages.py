"""Links whose other host vanishes: no packet comes, and no reset."""

import socket

import pytest

from quorate_cluster.names import told_in_own_network
from quorate_link import LinkSettings
from quorate_loopback.sides import Side, linked


def _unanswered_ms(link) -> int:
    connection = link._transport.get_extra_info("socket")
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)


@pytest.mark.needs("own-network")
def test_a_link_over_a_cut_network_ends_and_is_there_again_once_the_network_is() -> None:
    assert told_in_own_network("outage_story", 60) == {"heard": ["up", "down", "up"]}


@pytest.mark.parametrize(
    ("role", "accepted_ms"),
    [
        ("agent", LinkSettings().unacknowledged_ms_max),
        ("master", LinkSettings().unacknowledged_ms_max),
        ("tool", 0),  # it may read slowly
    ],
)
def test_each_side_bounds_how_long_what_it_sent_is_not_acknowledged_unless_by_a_tool(
    run, role: str, accepted_ms: int
) -> None:
    async def scenario() -> None:
        server, client = Side("agent-1"), Side("agent-2", role=role)
        _, dialed = await linked(server, client)
        (accepted,) = server.endpoint.links

        assert _unanswered_ms(dialed) == LinkSettings().unacknowledged_ms_max
        assert _unanswered_ms(accepted) == accepted_ms

    run(scenario)
