"""CustomResourceDefinitions of our kinds, made from the models.

The result is plain data; who writes it to files is a shell's matter.  Schemas are structural:
references resolved, no null types, no `additionalProperties: false`.
"""

from collections.abc import Callable
from typing import Any

from quorate.wire.exports.scheduled_zone_backup import ScheduledZoneBackup
from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.scheduled_data_validation import ScheduledDataValidation
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.master_term import MasterTerm
from quorate.wire.partition_table import PartitionTable
from quorate.wire.schema.resource import GROUP, VERSION, Resource
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.storage_node import StorageNode
from quorate.wire.zone import Zone
from quorate.wire.zone_recovery import ZoneRecovery

KINDS: tuple[type[Resource], ...] = (
    StorageCluster,
    Zone,
    ZoneRecovery,
    DataValidation,
    ScheduledDataValidation,
    ZoneBackup,
    ScheduledZoneBackup,
    ZoneRestore,
    ZoneRepair,
    PartitionTable,
    StorageNode,
    MasterTerm,
)
CATEGORY = "quorate"

Json = Any
"""A JSON value.  Schemas are data of no fixed shape, so this is where precision ends."""


def crd(kind: type[Resource]) -> dict[str, Json]:
    """The CustomResourceDefinition of one kind."""
    version: dict[str, Json] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root_schema(kind)},
        "additionalPrinterColumns": [
            {"name": name, "type": of, "jsonPath": path} for name, of, path in kind.printer_columns
        ],
    }
    if kind.has_status:
        version["subresources"] = {"status": {}}
    if kind.scale is not None:
        names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        version["subresources"]["scale"] = dict(zip(names, kind.scale, strict=True))
    singular = kind.kind_name().lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind.kind_name(),
                "listKind": f"{kind.kind_name()}List",
                "plural": kind.plural,
                "singular": singular,
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def crds() -> dict[str, dict[str, Json]]:
    """File stem -> definition, for all kinds."""
    return {kind.plural: crd(kind) for kind in KINDS}


def _root_schema(kind: type[Resource]) -> dict[str, Json]:
    generated = kind.model_json_schema(by_alias=True)
    definitions = generated.get("$defs", {})

    def resolve(schema: dict[str, Json]) -> dict[str, Json]:
        return _structural(schema, resolve, definitions)

    properties: dict[str, Json] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    for name in ("spec", "status"):
        if name in generated["properties"]:
            properties[name] = resolve(_without(generated["properties"][name], "default"))
    if "status" in properties:
        # The operator writes it whole: defaults would only show what nobody observed.
        properties["status"] = _without_defaults(properties["status"])
    root: dict[str, Json] = {
        "description": generated["description"],
        "type": "object",
        "required": ["spec"],
        "properties": properties,
    }
    if kind.rules:
        root["x-kubernetes-validations"] = [
            {"rule": rule.cel, "message": rule.message} for rule in kind.rules
        ]
    return root


def _structural(
    schema: dict[str, Json],
    resolve: Callable[[dict[str, Json]], dict[str, Json]],
    definitions: dict[str, Json],
) -> dict[str, Json]:
    """One schema without references, null types, titles and what only JSON schema knows."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return resolve({**target, **_without(schema, "$ref")})
    if "allOf" in schema and len(schema["allOf"]) == 1:
        return resolve({**schema["allOf"][0], **_without(schema, "allOf")})
    if schema.get("x-kubernetes-int-or-string"):
        # The API server allows no `type` beside it.
        schema = _without(schema, "anyOf", "title")
    elif "anyOf" in schema:
        kept = [branch for branch in schema["anyOf"] if branch.get("type") != "null"]
        if len(kept) == 1:
            return resolve({**kept[0], **_without(schema, "anyOf")})
    made: dict[str, Json] = {}
    for key, value in schema.items():
        if key == "title" or (key == "default" and value is None):
            continue
        if key == "additionalProperties" and isinstance(value, bool):
            continue
        if key == "properties":
            made[key] = {name: resolve(inner) for name, inner in value.items()}
        elif key in ("items", "additionalProperties"):
            made[key] = resolve(value)
        elif key == "description":
            made[key] = " ".join(value.split())
        else:
            made[key] = value
    return made


def _without(schema: dict[str, Json], *keys: str) -> dict[str, Json]:
    return {key: value for key, value in schema.items() if key not in keys}


def _without_defaults(schema: dict[str, Json]) -> dict[str, Json]:
    made = _without(schema, "default")
    if "properties" in made:
        inner = made["properties"]
        made["properties"] = {name: _without_defaults(each) for name, each in inner.items()}
    return made
