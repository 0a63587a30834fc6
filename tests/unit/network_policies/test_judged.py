"""Ends of connections by name, and which connections no policy allows."""

import pytest

from quorate_network_policies.evaluator import Policies
from quorate_network_policies.in_pods import Connection
from quorate_network_policies.judged import Judged

MACHINE, SERVICES, API_PORT = "10.201.0.254", "10.201.64.0/24", 6443
PEER_PORT = 7100
AGENT_POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "metadata": {"namespace": "storage", "name": "agents"},
    "spec": {
        "podSelector": {"matchLabels": {"app.kubernetes.io/component": "agent"}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [
                    {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "operator"}}}
                ],
                "ports": [{"port": PEER_PORT}],
            }
        ],
    },
}
POLICIES = Policies([AGENT_POLICY], {"storage": {}})


def _pod(name: str, component: str, address: str) -> dict[str, object]:
    labels = {"app.kubernetes.io/component": component}
    metadata = {"name": name, "namespace": "storage", "labels": labels}
    return {"metadata": metadata, "status": {"podIP": address}}


@pytest.fixture
def judged() -> Judged:
    made = Judged({MACHINE: "this machine"}, SERVICES, API_PORT)
    made.know(
        [
            _pod("agent-0", "agent", "10.201.129.2"),
            _pod("operator-0", "operator", "10.201.129.3"),
            _pod("nightly-validation-x", "validation", "10.201.129.4"),
        ]
    )
    return made


def test_each_connection_is_told_from_the_side_that_began_it(judged: Judged) -> None:
    seen = {
        Connection("operator-0", True, "10.201.129.2", PEER_PORT),
        Connection("agent-0", False, "10.201.129.3", PEER_PORT),
        Connection("operator-0", False, MACHINE, 8080),
        Connection("operator-0", True, "10.201.64.1", 443),
    }

    assert judged.ends(seen) == {
        ("operator", "agent", PEER_PORT),
        ("this machine", "operator", 8080),
        ("operator", "the API server", API_PORT),
    }


def test_a_connection_that_no_policy_allows_is_named(judged: Judged) -> None:
    seen = {
        Connection("operator-0", True, "10.201.129.2", PEER_PORT),
        Connection("nightly-validation-x", True, "10.201.129.2", PEER_PORT),
    }

    assert judged.denied(seen, POLICIES) == {
        "validation 10.201.129.4 -> agent 10.201.129.2 port 7100"
    }


def test_a_pod_that_was_made_anew_is_known_by_both_addresses(judged: Judged) -> None:
    judged.know([_pod("agent-0", "agent", "10.201.129.9")])
    seen = {
        Connection("operator-0", True, address, PEER_PORT)
        for address in ("10.201.129.2", "10.201.129.9")
    }

    assert judged.ends(seen) == {("operator", "agent", PEER_PORT)}


def test_a_kubelets_probe_is_not_judged_and_a_pod_may_not_connect_to_strangers(
    judged: Judged,
) -> None:
    assert judged.ends({Connection("agent-0", False, "10.201.129.1", 8080)}) == set()
    with pytest.raises(AssertionError, match=r"nobody who is known.*192\.0\.2\.1"):
        judged.ends({Connection("agent-0", True, "192.0.2.1", 80)})
