"""An operator that is not told where to answer about itself does so over IPv4 and IPv6."""

import pytest

from quorate_cluster.names import told_in_own_network


@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.needs("own-network")  # whose kernel may lack IPv6: else lo has ::1 there
def test_health_is_answered_over_ipv6_and_over_ipv4() -> None:
    seen = told_in_own_network("health_story", 100)
    assert seen == {"::1": 200, "127.0.0.1 while there is none": 0, "127.0.0.1": 200}
