"""The API server's audit log: which rights the requests of a user took, and which were missing.

The log has the requests of users in one group, and those of service accounts but for Kubernetes'
own, without their bodies: the other tests do not pay for it.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

AUDITED = "quorate-audited"
POLICY = json.dumps(
    {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "Metadata", "userGroups": [AUDITED, "system:serviceaccounts"]},
            {"level": "None"},
        ],
    }
)
_FORBIDDEN = '"code":403'
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


class Refusal(NamedTuple):
    """A request that was refused for want of a right, and when it came, in seconds of Unix time."""

    time: float
    user: str
    right: Right

    def __str__(self) -> str:
        return f"{self.user} may not {self.right}"


class AuditLog:
    """The log in a folder; a request is in it once it was answered, a watch once it has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def file(self) -> Path:
        """The file that is written.  One that was full stands beside it under a longer name."""
        return self._folder / "audit.log"

    def events(self, user: str) -> list[Json]:
        """Every answered request of this user."""
        found = map(json.loads, self._lines())
        return [each for each in found if each["user"]["username"] == user]

    def refusals(self, namespace: str) -> list[Refusal]:
        """Requests of the namespace's service accounts for want of whose rights they were refused,
        wherever they led."""
        accounts = f"system:serviceaccount:{namespace}:"
        events = (json.loads(line) for line in self._lines() if _FORBIDDEN in line)
        return [
            Refusal(
                datetime.fromisoformat(each["requestReceivedTimestamp"]).timestamp(),
                each["user"]["username"],
                right,
            )
            for each in events
            if each["user"]["username"].startswith(accounts)
            and (right := _missing_right(each)) is not None
        ]

    def _lines(self) -> Iterator[str]:
        for file in sorted(self._folder.glob("audit*.log")):
            with file.open() as lines:
                yield from lines


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
    return {right for each in events if (right := _missing_right(each)) is not None}


def _missing_right(event: Json) -> Right | None:
    """None: the request was not refused, or for another reason, such as a quota."""
    status = event.get("responseStatus", {})
    if status.get("code") != 403:
        return None
    found = _REFUSED.search(status.get("message", ""))
    if found is not None:  # the handler of an apply asks for more than the request's own verb
        return Right(found[1], found[3], found[2])
    if event["annotations"]["authorization.k8s.io/decision"] == "allow":
        return None
    asked = _right(event) or Right(event["verb"], "", event["requestURI"])
    return asked._replace(name="")


def _right(event: Json) -> Right | None:
    """None: no request for objects, such as one for the kinds that there are."""
    of = event.get("objectRef")
    if of is None or "resource" not in of:
        return None
    parts = [of["resource"], of.get("subresource", "")]
    return Right(
        event["verb"], of.get("apiGroup", ""), "/".join(filter(None, parts)), of.get("name", "")
    )
