"""`kubectl explain` reads like docs/crds.md: the real API server publishes the same texts."""

import json
from typing import Any

import pytest

from quorate.wire.crds import KINDS, crds
from quorate_control_plane.fixtures import Kubectl
from write_reference import fields

pytestmark = pytest.mark.integration


def _texts(schema: dict[str, Any]) -> dict[str, str]:
    own = {name: each for name, each in schema["properties"].items() if name in ("spec", "status")}
    return {
        path: " ".join(field["description"].split())
        for path, field, _ in fields({"properties": own})
    }


def test_the_api_server_publishes_every_field_with_its_text(kubectl: Kubectl) -> None:
    published = json.loads(kubectl("get", "--raw", "/openapi/v3/apis/quorate.io/v1alpha1").stdout)

    for kind in KINDS:
        (version,) = crds()[kind.plural]["spec"]["versions"]
        wanted = _texts(version["schema"]["openAPIV3Schema"])
        name = f"io.quorate.v1alpha1.{kind.kind_name()}"
        assert _texts(published["components"]["schemas"][name]) == wanted


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("zone.spec.replicas", "How many copies of each partition"),
        ("storagecluster.spec.managed.storage.size", "Its size, such as 10Gi"),
        ("storagenode.spec.weight", "Its share of the copies"),
    ],
)
def test_explain_says_what_the_reference_says(kubectl: Kubectl, path: str, said: str) -> None:
    explained = " ".join(kubectl("explain", path).stdout.split())

    assert said in explained
