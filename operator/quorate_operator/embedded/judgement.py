"""Says why manifests would be refused if they were declared now.  Changes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from quorate.facts.errors import WireError
from quorate.wire.storage_cluster import StorageCluster
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.embedded.objects import KINDS, BeingDeleted
from quorate_operator.embedded.operator import Embedded

_PLURALS = {kind.kind_name(): plural for plural, kind in KINDS.items()}


def refusals(embedded: Embedded, manifests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each manifest why it would be refused; empty where it would not.

    The manifests are judged together: a Zone may belong to a StorageCluster declared beside it.
    """
    clusters = {_name(each) for each in manifests if each.get("kind") == StorageCluster.kind_name()}
    return [_refusal(embedded, manifest, clusters) for manifest in manifests]


def _refusal(embedded: Embedded, manifest: Mapping[str, Any], clusters: set[str]) -> str:
    plural = _PLURALS.get(str(manifest.get("kind")))
    if plural is None:
        return f"kind is {manifest.get('kind')!r}: write {' or '.join(_PLURALS)}"
    try:
        made, _ = embedded.objects.prepare(plural, _name(manifest), manifest)
    except (WireError, BeingDeleted) as error:
        return str(error)
    if plural != Zone.plural:
        return ""
    kept = embedded.kept_name(_name(manifest))
    if kept:
        return kept
    acceptance = embedded.accept(Zone.parse(made), clusters)
    return "" if acceptance.reason == names.REASON_ACCEPTED else acceptance.message


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, Mapping) else ""
