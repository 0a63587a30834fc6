"""Each rule of the evaluator, on policies as the API reference tells of them."""

from typing import Any

import pytest

from quorate_network_policies.evaluator import End, Policies, selects

NAMESPACES = {"shop": {"team": "shop"}, "monitoring": {"team": "platform"}}
WEB = End("web", "10.0.0.1", "shop", {"app": "web"})
DATABASE = End("database", "10.0.0.2", "shop", {"app": "database"}, {"sql": 5432})
SCRAPER = End("scraper", "10.0.0.3", "monitoring", {"app": "scraper"})
OUTSIDE = End("outside", "192.0.2.7")


def policy(**spec: Any) -> dict[str, Any]:
    whole = {"podSelector": {"matchLabels": {"app": "database"}}, **spec}
    metadata = {"name": "p", "namespace": "shop"}
    return {"apiVersion": "networking.k8s.io/v1", "metadata": metadata, "spec": whole}


def allows(source: End, *policies: dict[str, Any], port: int = 5432, to: End = DATABASE) -> bool:
    return Policies(policies, NAMESPACES).allow(source, to, port)


def test_what_no_policy_selects_may_do_everything() -> None:
    other = {"matchLabels": {"app": "other"}}

    assert allows(WEB)
    assert allows(OUTSIDE, policy(podSelector=other, policyTypes=["Ingress", "Egress"]))


def test_a_policy_without_rules_denies_the_directions_that_it_names() -> None:
    ingress = policy(policyTypes=["Ingress"])

    assert not allows(WEB, ingress)
    assert allows(DATABASE, ingress, to=WEB)
    assert not allows(DATABASE, policy(policyTypes=["Egress"]), to=WEB)
    assert allows(WEB, policy(policyTypes=["Egress"]))


def test_directions_are_told_by_the_rules_where_none_is_named() -> None:
    assert not allows(WEB, policy())
    assert allows(DATABASE, policy(), to=WEB)
    assert not allows(
        DATABASE, policy(egress=[{"to": [{"podSelector": {}}], "ports": [{"port": 1}]}]), to=WEB
    )


def test_policies_add_up() -> None:
    of_web = policy(ingress=[{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}]}])
    of_none = policy(policyTypes=["Ingress"])

    assert allows(WEB, of_none, of_web)
    assert not allows(SCRAPER, of_none, of_web)


def test_both_ends_must_allow_a_connection() -> None:
    opened = policy(ingress=[{}])
    closed = policy(podSelector={"matchLabels": {"app": "web"}}, policyTypes=["Egress"])

    assert allows(WEB, opened)
    assert not allows(WEB, opened, closed)


def test_a_rule_without_peers_or_ports_matches_all() -> None:
    assert allows(OUTSIDE, policy(ingress=[{}]))
    assert allows(OUTSIDE, policy(ingress=[{"from": [], "ports": []}]))
    assert not allows(OUTSIDE, policy(ingress=[]))


@pytest.mark.parametrize(
    ("peer", "web", "scraper", "outside"),
    [
        ({"podSelector": {}}, True, False, False),
        ({"namespaceSelector": {}}, True, True, False),
        ({"namespaceSelector": {"matchLabels": {"team": "platform"}}}, False, True, False),
        (
            {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}},
            True,
            False,
            False,
        ),
        ({"ipBlock": {"cidr": "192.0.2.0/24"}}, False, False, True),
        ({"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.7/32"]}}, False, False, False),
    ],
)
def test_peers(peer: dict[str, Any], web: bool, scraper: bool, outside: bool) -> None:
    made = policy(ingress=[{"from": [peer]}])

    assert (allows(WEB, made), allows(SCRAPER, made), allows(OUTSIDE, made)) == (
        web,
        scraper,
        outside,
    )


def test_ports_by_number_range_name_and_protocol() -> None:
    def on(*ports: dict[str, Any]) -> dict[str, Any]:
        return policy(ingress=[{"ports": list(ports)}])

    assert allows(WEB, on({"port": 5432}))
    assert not allows(WEB, on({"port": 5433}))
    assert allows(WEB, on({"port": 5000, "endPort": 5432}))
    assert not allows(WEB, on({"port": 5000, "endPort": 5431}))
    assert allows(WEB, on({"port": "sql"}))
    assert not allows(WEB, on({"port": "http"}))
    assert allows(WEB, on({"protocol": "TCP"}))
    assert not allows(WEB, on({"protocol": "UDP", "port": 5432}))
    assert allows(WEB, on({"port": 1}, {"port": 5432}))


def test_selectors() -> None:
    labels = {"app": "web", "tier": "front"}

    def one(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
        return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}

    assert selects({}, labels)
    assert selects({"matchLabels": {"app": "web"}}, labels)
    assert not selects({"matchLabels": {"app": "web", "tier": "back"}}, labels)
    assert selects(one("In", "web", "api"), labels)
    assert selects(one("NotIn", "api"), labels)
    assert selects(one("NotIn", "api", key="absent"), labels)
    assert selects(one("Exists"), labels)
    assert not selects(one("Exists", key="absent"), labels)
    assert selects(one("DoesNotExist", key="absent"), labels)
    with pytest.raises(ValueError, match="no operator 'Has'"):
        selects(one("Has"), labels)
