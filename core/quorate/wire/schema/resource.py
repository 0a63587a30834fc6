"""The base of all custom resources, and the sentences that refuse a bad manifest.

A model is the only description of its kind: the CRD's schema is generated from it, and the embedded
operator validates with it.  A `Rule` that JSON schema cannot say stands in one place with both its
readers: CEL for the API server, a Python check for this process.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from quorate.facts.errors import WireError
from quorate.wire.schema.attribute_docs import attribute_docs
from quorate.wire.schema.names import API_VERSION as API_VERSION
from quorate.wire.schema.names import GROUP as GROUP
from quorate.wire.schema.names import NAME_LENGTH_MAX as NAME_LENGTH_MAX
from quorate.wire.schema.names import VERSION as VERSION
from quorate.wire.schema.names import is_short_name
from quorate.wire.schema.unknown_fields import UnknownField, without_unknown

SENTENCES_MAX = 10
"""Problems of one manifest that are told; of the others there is only the number."""

Integer = Annotated[int, Field(strict=True)]
Text = Annotated[str, Field(strict=True)]


class DeletionPolicy(enum.StrEnum):
    """What becomes of data when its object is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a model, for the API server (`cel`) and for this process (`holds`).

    `field` is the camelCase field it speaks of ("" for the whole part); `message` says what to
    write instead.  `holds(new, old)`: old is None when the object is new; a rule whose CEL names
    oldSelf is only asked about changes.
    """

    field: str
    cel: str
    message: str
    holds: Callable[[Any, Any], bool]
    shows_value: bool = True
    """Whether a refusal shows the field's value; not where it may have credentials."""

    @property
    def is_transition(self) -> bool:
        """Whether it compares with the object as it was."""
        return "oldSelf" in self.cel


def immutable(field: str, why: str, optional: bool = False) -> Rule:
    """The rule that `field` (camelCase) never changes; `why` ends with the way out."""
    cel = f"self.{field} == oldSelf.{field}"
    if optional:
        cel = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {cel})"
    name = _snake(field)

    def holds(new: Any, old: Any) -> bool:
        return bool(getattr(new, name) == getattr(old, name))

    return Rule(field, cel, f"{field} cannot be changed: {why}", holds)


class Part(BaseModel):
    """A piece of a resource: camelCase outside, unknown fields refused, attribute docs kept."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        docs = attribute_docs(cls)
        for name, field in cls.model_fields.items():
            if name in docs:
                shown = schema["properties"][field.alias or name]
                shown.setdefault("description", docs[name])
        if cls.rules:
            schema["x-kubernetes-validations"] = [
                {
                    "rule": rule.cel,
                    "message": rule.message,
                    **({"fieldPath": f".{rule.field}"} if rule.field else {}),
                }
                for rule in cls.rules
            ]
        return schema


class Condition(Part):
    """One observation in the standard form of the Kubernetes API."""

    type: Text
    """What is observed, such as Available; docs/operator.md lists them."""
    status: Annotated[Text, Field(pattern="^(True|False|Unknown)$")]
    """True, False or Unknown."""
    reason: Text
    """Why, in one word."""
    message: Text
    """Why, in a sentence, with what to do if something must be done."""
    last_transition_time: Annotated[Text, Field(json_schema_extra={"format": "date-time"})]
    """When the status changed last."""
    observed_generation: Integer | None = None
    """The `metadata.generation` of the spec that the observation is of."""


Conditions = Annotated[
    list[Condition],
    Field(
        description="What is observed: one condition of each type.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    ),
]
"""One of each type: whoever applies one leaves the others alone."""


class OwnerReference(BaseModel):
    """Whose deletion takes this object with it."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", populate_by_name=True)

    api_version: str
    kind: str
    name: str
    uid: str


class Metadata(BaseModel):
    """The part of metadata we read; the API server owns the rest."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", populate_by_name=True)

    name: Annotated[str, Field(min_length=1)]
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class Resource(BaseModel):
    """A custom resource; `kind` and the names of the CRD are class attributes."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, populate_by_name=True
    )
    plural: ClassVar[str]
    short_name: ClassVar[str]
    printer_columns: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    has_status: ClassVar[bool] = False
    scale: ClassVar[tuple[str, str, str] | None] = None
    """For `kubectl scale`: paths of the wanted number, the present one and the pods' selector."""
    rules: ClassVar[tuple[Rule, ...]] = ()

    metadata: Metadata

    @classmethod
    def kind_name(cls) -> str:
        """The kind as manifests spell it."""
        return cls.__name__

    @classmethod
    def parse(cls, manifest: Mapping[str, Any], old: "Self | None" = None) -> Self:
        """A manifest as a value; `old` is the object it changes.  Raises WireError."""
        about = describe(manifest, cls.kind_name())
        for field, wanted in (("apiVersion", API_VERSION), ("kind", cls.kind_name())):
            if manifest.get(field) != wanted:
                raise WireError(
                    f"{about}: {field} is {shortened(repr(manifest.get(field)))}: write {wanted}"
                )
        try:
            parsed = cls.model_validate(_body_of(manifest))
        except pydantic.ValidationError as error:
            raise WireError(f"{about}: {'; '.join(_sentences(error, cls))}") from error
        broken = _broken_rules(parsed, old)
        if broken:
            raise WireError(f"{about}: {'; '.join(broken)}")
        return parsed

    @classmethod
    def parse_stored(cls, manifest: Mapping[str, Any]) -> Self:
        """An object that is stored, as a value: fields of a later version are ignored."""
        return cls.parse_known(manifest)[0]

    @classmethod
    def parse_known(cls, manifest: Mapping[str, Any]) -> tuple[Self, tuple[UnknownField, ...]]:
        """As `parse_stored`, and the fields that were ignored."""
        try:
            return cls.parse(manifest), ()
        except WireError:
            known, unknown = without_unknown(cls, _body_of(manifest))
            if not unknown:
                raise
            head = {field: manifest.get(field) for field in ("apiVersion", "kind")}
            return cls.parse({**head, **known}), unknown


def _body_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """An object as its model reads it: without its kind, its status, and fields that are null."""
    body = {k: v for k, v in manifest.items() if k not in ("apiVersion", "kind", "status")}
    return {field: _without_nulls(value) for field, value in body.items() if value is not None}


def name_rule(kind: str, length_max: int = NAME_LENGTH_MAX) -> Rule:
    """Names of our kinds stay short enough for the names of their children."""
    return Rule(
        "",
        f"self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') "
        f"&& self.metadata.name.size() <= {length_max}",
        f"metadata.name of a {kind}: write lower-case letters, digits and '-', "
        f"at most {length_max} characters",
        lambda new, _: is_short_name(new.metadata.name, length_max),
    )


def describe(manifest: Mapping[str, Any], kind: str) -> str:
    """How an error names the object it speaks of."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        return f"a {kind} without a name"
    return f"{kind} {shortened(name)}"


def _snake(field: str) -> str:
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in field)


def _without_nulls(value: Any) -> Any:
    """Objects without the fields that are null: the API server prunes them before defaulting."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _broken_rules(new: Any, old: Any, path: str = "") -> list[str]:
    broken = [
        _rule_sentence(path, new, rule)
        for rule in new.rules
        if (old is not None or not rule.is_transition) and not rule.holds(new, old)
    ]
    for field, about in type(new).model_fields.items():
        value = getattr(new, field)
        if isinstance(value, Part):
            inner = ".".join(part for part in (path, about.alias or field) if part)
            before = getattr(old, field) if old is not None else None
            broken += _broken_rules(value, before, inner)
    return broken


def _rule_sentence(path: str, part: Any, rule: Rule) -> str:
    if not rule.field:
        return rule.message
    value = getattr(part, _snake(rule.field))
    shown = f" is {_shown(value)}" if value is not None and rule.shows_value else ""
    where = f"{path}.{rule.field}" if path else rule.field
    return f"{where}{shown}: {rule.message}"


def _shown(value: Any) -> str:
    dumped = value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value
    return shortened(str(dumped) if isinstance(dumped, str | int) else repr(dumped))


def shortened(text: str) -> str:
    """A piece of what somebody sent, as long as it fits into a sentence."""
    return text if len(text) <= 80 else text[:77] + "..."


def _sentences(error: pydantic.ValidationError, model: type[BaseModel]) -> list[str]:
    sentences: list[str] = []
    problems = error.errors(include_url=False)
    for number, found in enumerate(problems):
        if len(sentences) == SENTENCES_MAX:
            sentences.append(f"and {len(problems) - number} more")
            break
        path = _path(found["loc"])
        kind, context = found["type"], found.get("ctx", {})
        if kind == "extra_forbidden":
            known = _known_fields(model, found["loc"][:-1])
            close = get_close_matches(str(found["loc"][-1]), known, 1)
            hint = f"did you mean {close[0]}?" if close else f"known fields are {', '.join(known)}"
            text = f"{path} is not a known field: {hint}"
        elif kind == "missing":
            text = f"{path} is missing: write it"
        elif kind == "enum":
            text = f"{path} is {_shown(found['input'])}: write {context['expected']}"
        else:
            wanted = found["msg"].removeprefix("Input ").removeprefix("Value error, ")
            shown = (
                shortened(repr(found["input"]))
                if kind.endswith("_type")
                else _shown(found["input"])
            )
            text = f"{path} is {shown}: {wanted}"
        if text not in sentences:
            sentences.append(text)
    return sentences


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return shortened(path)


def _known_fields(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Names of the fields of the part at `loc`; empty where it is not a part."""
    for step in loc:
        field = next((f for name, f in model.model_fields.items() if step in (name, f.alias)), None)
        inner = field.annotation if field is not None else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]
