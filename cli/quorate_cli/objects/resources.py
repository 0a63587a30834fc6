"""The kinds of objects that a user declares (StorageCluster, Zone), and reading such objects.

An object is kept as the JSON it came as, so that no field is lost on its way to the user; `cluster`
and `zone` parse it by the models of the custom resources.  These take longer to import than all the
rest of `quorate`, so functions import them: many commands, such as `quorate status`, need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from quorate_cli.objects.operator_api import NotThere, OperatorApi, object_path
from quorate_cli.terminal.problem import Problem

if TYPE_CHECKING:
    from quorate.wire.schema.resource import Resource
    from quorate.wire.storage_cluster import StorageCluster
    from quorate.wire.zone import Zone

Whole = dict[str, object]
"""An object as JSON, with all its fields."""


class Kind(NamedTuple):
    """A kind, by all its names."""

    name: str
    plural: str
    short: str

    @property
    def model(self) -> type[Resource]:
        """The model that checks its manifests."""
        from quorate.wire.storage_cluster import StorageCluster
        from quorate.wire.zone import Zone

        models: tuple[type[Resource], ...] = (StorageCluster, Zone)
        return next(model for model in models if model.kind_name() == self.name)

    @property
    def singular(self) -> str:
        """The name of one object of this kind in sentences."""
        return self.name.lower()


STORAGE_CLUSTER = Kind("StorageCluster", "storageclusters", "stc")
ZONE = Kind("Zone", "zones", "zn")
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
    from quorate.wire.storage_cluster import StorageCluster

    return parsed(StorageCluster, whole)


def zone(whole: Whole) -> Zone:
    """Parse a Zone as the operator answers it."""
    from quorate.wire.zone import Zone

    return parsed(Zone, whole)


M = TypeVar("M", bound="Resource")


def parsed(model: type[M], whole: Whole) -> M:
    """Parse an object of this kind.  Raises Problem if it has what this version does not know."""
    import pydantic

    from quorate.wire.schema.unknown_fields import without_unknown

    body = {key: value for key, value in whole.items() if key not in ("apiVersion", "kind")}
    try:
        return model.model_validate(without_unknown(model, body).body)
    except pydantic.ValidationError as error:
        raise Problem(
            f"{whole.get('kind')} {name_of(whole)}: this version does not understand"
            f" {error.error_count()} of its fields: use the `quorate` of the operator's version"
        ) from error
