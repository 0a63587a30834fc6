"""Docstrings of fields, as pydantic reads them too."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from quorate.wire.schema.attribute_docs import attribute_docs
from quorate.wire.schema.resource import Part


class Documented(BaseModel):
    """A model whose docstrings pydantic keeps."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    first: int
    """One line."""
    bare: int = 0
    long: list[int] = Field(default_factory=list)
    """Two lines: the second
    is indented."""

    def method(self) -> None:
        """Is no field."""


class Inheriting(Documented):
    """A model with fields of another."""

    last: int = 0
    """Its own."""


class Shown(Part):
    """A part with a description of its own."""

    rule: ClassVar[int] = 0
    """No field."""
    a_field: int = Field(default=0, alias="other")
    """From the docstring."""
    described: int = Field(default=0, description="From the field.")
    """Not this."""


def test_they_are_those_that_pydantic_reads() -> None:
    known = {
        name: field.description
        for name, field in Inheriting.model_fields.items()
        if field.description is not None
    }

    assert attribute_docs(Inheriting) == known
    assert known["long"] == "Two lines: the second\nis indented."


def test_schemas_show_them_where_a_field_has_no_description() -> None:
    properties = Shown.model_json_schema()["properties"]

    assert {name: each["description"] for name, each in properties.items()} == {
        "other": "From the docstring.",
        "described": "From the field.",
    }
