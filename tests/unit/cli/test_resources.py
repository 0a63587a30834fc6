"""Kinds of declared objects, and their models."""

import pytest

from quorate_cli.objects.resources import KINDS, Kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_has_the_names_of_its_model(kind: Kind) -> None:
    model = kind.model

    assert (model.kind_name(), model.plural, model.short_name) == kind
