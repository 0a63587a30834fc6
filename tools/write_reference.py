"""Generate docs/crds.md, every kind with every field, or compare it (`--check`).

From the same models as crds/, so `kubectl explain` says the same.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quorate.wire.crds import crds

REFERENCE = Path(__file__).parents[1] / "docs" / "crds.md"
_HEAD = """# Kinds and fields

<!-- Written by `make crds`: change the models in core/quorate/wire, not this file. -->

All kinds are of the group `quorate.io`, version `v1alpha1`, and live in a namespace.
`kubectl explain zone.spec` shows the same texts. Users declare [StorageCluster](#storagecluster)
and [Zone](#zone), decide by a [ZoneRecovery](#zonerecovery) where a zone does not help itself, and
compare the copies of a zone by a [DataValidation](#datavalidation), export it by a
[ZoneBackup](#zonebackup), import it by a [ZoneRestore](#zonerestore) and give keys that differ the
same row again by a [ZoneRepair](#zonerepair). Schedules create such runs:
[ScheduledDataValidation](#scheduleddatavalidation) and [ScheduledZoneBackup](#scheduledzonebackup).
The operator writes the others.
A field without a default that is not *required* may be left out.
"""
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
}
_NOT_EMPTY = ("minLength", "minItems")

Json = dict[str, Any]


def reference() -> str:
    """The whole document."""
    return _HEAD + "".join("".join(_kind(each)) for each in crds().values())


def fields(schema: Json, path: str = "") -> Iterator[tuple[str, Json, bool]]:
    """Path, schema and whether it is required, of each field below; lists and maps are entered."""
    required = schema.get("required", ())
    for name, field in (schema.get("properties") or {}).items():
        at = f"{path}.{name}" if path else name
        yield at, field, name in required
        yield from fields(field, at)
        yield from fields(field.get("items") or {}, f"{at}[]")
        values = field.get("additionalProperties")
        yield from fields(values if isinstance(values, dict) else {}, f"{at}.*")


def rules(schema: Json, path: str) -> Iterator[tuple[str, str]]:
    """Path and message of each rule that the API server checks besides the types."""
    for rule in schema.get("x-kubernetes-validations") or ():
        yield f"{path}{rule.get('fieldPath', '')}".removeprefix("."), rule["message"]
    for name, field in (schema.get("properties") or {}).items():
        yield from rules(field, f"{path}.{name}" if path else name)
        yield from rules(field.get("items") or {}, f"{path}.{name}[]")


def _kind(definition: Json) -> Iterator[str]:
    names = definition["spec"]["names"]
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    yield f"\n## {names['kind']}\n\n{_text(schema)}\n\n"
    short = ", ".join(f"`{each}`" for each in names["shortNames"])
    columns = ", ".join(each["name"] for each in version["additionalPrinterColumns"])
    yield f"`kubectl get {names['plural']}` (short: {short}) shows {columns}."
    if "scale" in version.get("subresources", {}):
        yield " `kubectl scale` works on it."
    yield "\n"
    for part in ("spec", "status"):
        if part in schema["properties"]:
            of = schema["properties"][part]
            yield f"\n### {names['kind']}: {part}\n\n{_text(of)}\n\n"
            yield _row("field", "type", "default", "what it is") + _row(*["---"] * 4)
            for path, field, required in fields(of, part):
                yield _row(f"`{path}`", _type(field), _default(field, required), _about(field))
    refused = sorted(set(rules(schema, "")))
    if refused:
        yield f"\n### {names['kind']}: what is refused\n\n"
        yield _row("where", "what to write") + _row("---", "---")
        for path, message in refused:
            yield _row(f"`{path}`" if path else "the object", message)


def _row(*cells: str) -> str:
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |\n"


def _type(field: Json) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map to {_type(field['additionalProperties'])}"
    return str(kind)


def _default(field: Json, required: bool) -> str:
    if required:
        return "*required*"
    if "default" not in field or field["default"] in ({}, []):
        return ""
    value = field["default"]
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _about(field: Json) -> str:
    limits = [
        "not empty" if key in _NOT_EMPTY and field[key] == 1 else text.format(field[key])
        for key, text in _LIMITS.items()
        if key in field
    ]
    words = field.get("enum") or (field.get("items") or {}).get("enum")
    if words:
        limits.append("one of " + ", ".join(f"`{each}`" for each in words))
    return _text(field) + (f" ({', '.join(limits)})" if limits else "")


def _text(schema: Json) -> str:
    return " ".join(schema.get("description", "").split())


def main() -> int:
    """Exit code 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description="Write docs/crds.md.")
    parser.add_argument("--check", action="store_true", help="only compare")
    if not parser.parse_args().check:
        REFERENCE.write_text(reference())
        return 0
    if not REFERENCE.exists() or REFERENCE.read_text() != reference():
        print(f"{REFERENCE}: not up to date: run make crds")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
