"""The kinds of objects that a user declares (StorageCluster, Zone), and reading such objects.

An object is kept as the JSON it came as, so that no field is lost on its way to the user; `cluster`
and `zone` parse it by the models of the custom resources.
"""

from typing import NamedTuple, TypeVar

import msgspec
import pydantic

from quorate.wire.resource import Resource
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.unknown_fields import without_unknown
from quorate.wire.zone import Zone
from quorate.wire.zone_recovery import ZoneRecovery
from quorate_cli.objects.operator_api import NotThere, OperatorApi, object_path
from quorate_cli.terminal.problem import Problem

Whole = dict[str, object]
"""An object as JSON, with all its fields."""


class Kind(NamedTuple):
    """A kind: all its names, and the model that checks its manifests."""

    name: str
    plural: str
    short: str
    model: type[Resource]

    @property
    def singular(self) -> str:
        """The name of one object of this kind in sentences."""
        return self.name.lower()


def _kind(model: type[Resource]) -> Kind:
    return Kind(model.kind_name(), model.plural, model.short_name, model)


STORAGE_CLUSTER = _kind(StorageCluster)
ZONE = _kind(Zone)
KINDS = (STORAGE_CLUSTER, ZONE)


def find_kind(text: str) -> Kind:
    """Return the kind that a user means by `text`: its name, plural or short name, in any case."""
    for kind in KINDS:
        if text.lower() in (kind.singular, kind.plural, kind.short):
            return kind
    known = ", ".join(f"{kind.plural} ({kind.short})" for kind in KINDS)
    raise Problem(f"kind {text!r} is not known: write one of {known}")


def name_of(whole: Whole) -> str:
    """Return metadata.name."""
    metadata = whole.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def fetch(api: OperatorApi, kind: Kind, name: str) -> Whole:
    """Return one object; raise NotThere, which names those that exist, if there is none."""
    try:
        return api.get(object_path(kind.plural, name), Whole)
    except NotThere as error:
        names = [name_of(whole) for whole in fetch_all(api, kind)]
        there = f"there are {', '.join(names)}" if names else "there are none"
        raise NotThere(f"{kind.singular} {name!r} does not exist: {there}") from error


class _List(msgspec.Struct):
    items: list[Whole]


def fetch_all(api: OperatorApi, kind: Kind) -> list[Whole]:
    """Return all objects of a kind, sorted by name."""
    return sorted(api.get(object_path(kind.plural), _List).items, key=name_of)


def cluster(whole: Whole) -> StorageCluster:
    """Parse a StorageCluster as the operator answers it."""
    return parsed(StorageCluster, whole)


def zone(whole: Whole) -> Zone:
    """Parse a Zone as the operator answers it."""
    return parsed(Zone, whole)


def recovery(whole: Whole) -> ZoneRecovery:
    """Parse a ZoneRecovery with its result."""
    return parsed(ZoneRecovery, whole)


M = TypeVar("M", bound=Resource)


def parsed(model: type[M], whole: Whole) -> M:
    """Parse an object of this kind.  Raises Problem if it has what this version does not know."""
    body = {key: value for key, value in whole.items() if key not in ("apiVersion", "kind")}
    try:
        return model.model_validate(without_unknown(model, body).body)
    except pydantic.ValidationError as error:
        raise Problem(
            f"{whole.get('kind')} {name_of(whole)}: this version does not understand"
            f" {error.error_count()} of its fields: use the `quorate` of the operator's version"
        ) from error
