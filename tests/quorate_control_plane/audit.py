"""The API server's audit log: which rights the requests of a user took, and which were missing.

The log has the requests of users in one group only, without their bodies, so that the other tests
do not pay for it.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

AUDITED = "quorate-audited"
POLICY = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "Metadata", "userGroups": [AUDITED]}, {"level": "None"}],
    }
)
_REFUSED = re.compile(r'User "[^"]*" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')

Json = Mapping[str, Any]


class Right(NamedTuple):
    """One verb of one resource, with its subresource behind a slash; `name` empty: of any name."""

    verb: str
    group: str
    resource: str
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}"


class AuditLog:
    """The log in a file; a request is in it once it was answered, a watch once it has ended."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def events(self, user: str) -> list[Json]:
        """Every answered request of this user."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        found = map(json.loads, lines)
        return [each for each in found if each["user"]["username"] == user]


def granted_rights(rules: Iterable[Json]) -> set[Right]:
    """Every right that the rules of roles grant; a star is refused, because it has no end."""
    rights: set[Right] = set()
    for rule in rules:
        for verb in rule["verbs"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    assert "*" not in (verb, group, resource), f"a rule grants all: {rule}"
                    names = rule.get("resourceNames") or ("",)
                    rights |= {Right(verb, group, resource, name) for name in names}
    return rights


def used_rights(events: Iterable[Json]) -> set[Right]:
    """The rights that requests took which were allowed; each once with the object's name, if the
    request has one, and once without.

    Who applies an object that is not there needs the right to create it, beside that to patch."""
    used: set[Right] = set()
    for event in events:
        asked = _right(event)
        if asked is None or event["annotations"]["authorization.k8s.io/decision"] != "allow":
            continue
        code = event.get("responseStatus", {}).get("code")
        verbs = [asked.verb]
        if asked.verb == "patch" and code == 201:
            verbs.append("create")
        for verb in verbs:
            used |= {asked._replace(verb=verb), asked._replace(verb=verb, name="")}
    return used


def missing_rights(events: Iterable[Json]) -> set[Right]:
    """The rights for want of which requests were refused."""
    missing: set[Right] = set()
    for event in events:
        status = event.get("responseStatus", {})
        if status.get("code") != 403:
            continue
        found = _REFUSED.search(status.get("message", ""))
        asked = _right(event)
        if found is not None:  # the handler of an apply asks for more than the request's own verb
            missing.add(Right(found[1], found[3], found[2]))
        elif asked is not None and event["annotations"]["authorization.k8s.io/decision"] != "allow":
            missing.add(asked._replace(name=""))
    return missing


def _right(event: Json) -> Right | None:
    """None: no request for objects, such as one for the kinds that there are."""
    of = event.get("objectRef")
    if of is None or "resource" not in of:
        return None
    parts = [of["resource"], of.get("subresource", "")]
    return Right(
        event["verb"], of.get("apiGroup", ""), "/".join(filter(None, parts)), of.get("name", "")
    )
