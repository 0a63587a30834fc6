"""Rights that were granted, used and missing, out of rules and lines of an audit log."""

from typing import Any

import pytest

from quorate_control_plane.audit import Right, granted_rights, missing_rights, used_rights


def event(
    verb: str, resource: str, name: str = "", code: int = 200, message: str = "", **of: str
) -> dict[str, Any]:
    return {
        "verb": verb,
        "objectRef": {"resource": resource, "name": name, **of},
        "responseStatus": {"code": code, "message": message},
        "annotations": {
            "authorization.k8s.io/decision": "forbid" if message.startswith("no ") else "allow"
        },
    }


def test_rules_grant_each_verb_of_each_resource_by_name() -> None:
    rules = [
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a"]},
    ]

    assert granted_rights(rules) == {
        Right("list", "", "pods"),
        Right("list", "", "events"),
        Right("get", "", "secrets", "a"),
    }
    with pytest.raises(AssertionError, match="grants all"):
        granted_rights([{"apiGroups": ["*"], "resources": ["pods"], "verbs": ["list"]}])


def test_a_request_uses_the_right_to_its_subresource_and_an_apply_may_use_two() -> None:
    used = used_rights(
        [
            event("patch", "zones", "a", apiGroup="quorate.io", subresource="status"),
            event("patch", "pods", "there"),
            event("patch", "services", "new", code=201),
            {"verb": "get", "annotations": {"authorization.k8s.io/decision": "allow"}},
        ]
    )

    assert {each for each in used if not each.name} == {
        Right("patch", "quorate.io", "zones/status"),
        Right("patch", "", "pods"),
        Right("patch", "", "services"),
        Right("create", "", "services"),
    }
    assert Right("create", "", "services", "new") in used


def test_a_refused_request_names_the_right_that_it_lacked() -> None:
    refused = 'services is forbidden: User "o" cannot create resource "services" in API group ""'
    missing = missing_rights(
        [
            event("list", "nodes", code=403, message="no reason"),
            event("patch", "services", "new", code=403, message=refused),
            event("create", "pods", code=403, message="exceeded quota"),
            event("get", "secrets", "a"),
        ]
    )

    assert missing == {Right("list", "", "nodes"), Right("create", "", "services")}
    page = {**event("get", "", code=403, message="no page"), "requestURI": "/metrics"}
    assert missing_rights([{**page, "objectRef": None}]) == {Right("get", "", "/metrics")}
    assert used_rights([event("list", "nodes", code=403, message="no reason")]) == set()
    assert str(Right("get", "apps", "statefulsets", "a")) == "get statefulsets.apps a"
