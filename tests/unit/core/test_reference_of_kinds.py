"""docs/crds.md: generated from the models, with a sentence for every field."""

import pytest

from quorate.wire.crds import crds
from write_reference import REFERENCE, fields, reference


def test_the_reference_is_up_to_date() -> None:
    assert REFERENCE.read_text() == reference(), "run make crds"


@pytest.mark.parametrize("plural", list(crds()))
def test_every_field_is_told_of(plural: str) -> None:
    (version,) = crds()[plural]["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    own = {name: each for name, each in schema["properties"].items() if name in ("spec", "status")}

    found = {path: field for path, field, _ in fields({"properties": own})}

    assert found
    assert [path for path, field in found.items() if not field.get("description")] == []
