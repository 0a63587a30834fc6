"""Which changes `quorate apply` finds in a manifest, compared with the declared object."""

from typing import Any

import pytest

from quorate.wire.restoring import RESTORING
from quorate.wire.schema.names import API_VERSION
from quorate_cli.commands.objects import what_changes
from quorate_cli.objects.manifest import Manifest
from quorate_cli.objects.resources import ZONE

PAUSED = {"annotations": {"quorate.io/paused": "true"}}
IMPORTED = {"annotations": {RESTORING: "place#export.run"}}


def zone(metadata: dict[str, Any], **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Zone",
        "metadata": {"name": "library", **metadata},
        "spec": {"clusterRef": {"name": "main"}, **spec},
    }


def changes(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    return what_changes(Manifest(ZONE, "library", after, "zone.yaml"), before)


def test_an_object_is_new_or_the_same_or_its_fields_change() -> None:
    assert changes(None, zone({})) == "created"
    assert changes(zone({}), zone({})) == "unchanged"
    assert changes(zone({}), zone({}, replicas=2)) == "changed (replicas: 3 -> 2)"


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({}, PAUSED, "changed (annotation quorate.io/paused: None -> true)"),
        (PAUSED, {}, "changed (annotation quorate.io/paused: true -> None)"),
        (PAUSED, PAUSED, "unchanged"),
        ({"labels": {"team": "a"}}, {"labels": {"team": "b"}}, "changed (label team: a -> b)"),
        ({"labels": {}, "uid": "u", "generation": 3}, {}, "unchanged"),
    ],
)
def test_labels_and_annotations_are_changes(
    before: dict[str, Any], after: dict[str, Any], found: str
) -> None:
    assert changes(zone(before), zone(after)) == found


def test_the_note_of_an_import_is_kept_by_the_operator() -> None:
    assert changes(zone(IMPORTED), zone({})) == "unchanged"
    given = {"annotations": {RESTORING: ""}}
    assert f"annotation {RESTORING}: place#export.run -> " in changes(zone(IMPORTED), zone(given))
