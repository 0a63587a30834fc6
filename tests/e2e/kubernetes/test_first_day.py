"""The first day: the manual's own commands, from `helm install` to the first key."""

import pytest

from quorate_cluster.fixtures import Measured
from quorate_nodes.release.any_user import USER
from quorate_nodes.release.installed import OPERATORS, ZONE, FirstSet, Installed, is_ready

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

PING = """
import socket
with socket.create_connection(("library-clients", 6379), 5) as line:
    line.sendall(b"PING\\r\\n")
    print(line.recv(100))
"""
ID = """
import os, pwd
print(os.getuid(), [each for each in pwd.getpwall() if each.pw_uid == os.getuid()])
"""


def test_the_manual_leads_to_a_first_key(
    installed: Installed, first_set: FirstSet, measured: Measured
) -> None:
    measured(
        "helm install to the first SET",
        f"{first_set.whole_s:.1f} s, operators after {first_set.operators_s:.1f} s",
    )
    assert installed.client(ZONE).get("greeting") == b"hello"
    assert [is_ready(pod) for pod in installed.pods(OPERATORS)] == [True, True]
    installed.wait_whole()
    agents = installed.pods()
    assert [pod["metadata"]["name"] for pod in agents] == [f"main-agent-{n}-0" for n in (1, 2, 3)]
    assert len({pod["spec"]["nodeName"] for pod in agents}) == 3
    assert first_set.restarts == 0
    pong = installed.kubectl("exec", "main-agent-1-0", "--", "python3", "-c", PING)
    assert pong.strip() == repr(b"+PONG\r\n")
    for pod in [*agents, *installed.pods(OPERATORS)]:
        name = pod["metadata"]["name"]
        assert installed.kubectl("exec", name, "--", "python3", "-c", ID).strip() == f"{USER} []"
