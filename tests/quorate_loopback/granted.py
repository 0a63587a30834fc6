"""The rights of examples/operator-role.yaml, for an API server in memory that has none."""

from functools import cache
from pathlib import Path

import yaml

_ROLE = Path(__file__).parents[2] / "examples" / "operator-role.yaml"
_VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete"}
"""Patches are missing: the path of one does not say whether it is of a status."""


def refusal(method: str, path: str) -> int:
    """Return 403 for a request that the role does not grant, else 0."""
    group, resource, name = _parts(path)
    verb = _VERBS.get(method) or (("get" if name else "list") if method == "GET" else "")
    named = name if method != "POST" else ""
    return 0 if not verb or _is_granted(verb, group, resource, named) else 403


def _parts(path: str) -> tuple[str, str, str]:
    """Return group, resource and name of a path of an API server."""
    words = path.strip("/").split("/")
    group, rest = ("", words[2:]) if words[0] == "api" else (words[1], words[3:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    resource, name, *_ = [*rest, "", ""]
    return group, resource, name


def _is_granted(verb: str, group: str, resource: str, name: str) -> bool:
    return any(
        group in groups
        and resource in resources
        and verb in verbs
        and (not only or name in only or verb == "create")
        for groups, resources, verbs, only in _rules()
    )


@cache
def _rules() -> list[tuple[list[str], list[str], list[str], list[str]]]:
    [role] = [
        each for each in yaml.safe_load_all(_ROLE.read_text("utf-8")) if each["kind"] == "Role"
    ]
    return [
        (rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", []))
        for rule in role["rules"]
    ]
