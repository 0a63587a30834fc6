"""Claims that are to grow: which are refused, and why, and which have not grown yet."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from quorate.wire.zone import memory_bytes

Json = Mapping[str, Any]

OF_THE_CLASS = "must support resize"
"""The end of the API server's refusal if the StorageClass has no allowVolumeExpansion."""


class Growth(NamedTuple):
    """Volumes smaller than declared: one word and a sentence; both are empty if all have grown."""

    reason: str = ""
    message: str = ""


def is_growth(wanted: Json, there: Json | None) -> bool:
    """Return whether `wanted` is a claim that exists with a smaller size."""
    if wanted["kind"] != "PersistentVolumeClaim" or there is None:
        return False
    return memory_bytes(_asked(wanted)) > memory_bytes(_asked(there))


def with_its_size(wanted: Json, there: Json) -> dict[str, Any]:
    """Return the wanted claim with the size that the existing one has."""
    resources = {**wanted["spec"]["resources"], "requests": {"storage": _asked(there)}}
    return {**wanted, "spec": {**wanted["spec"], "resources": resources}}


def growth(claims: Mapping[str, Json], size: str, refused: Mapping[str, str]) -> Growth:
    """Return which volumes are smaller than declared, and why.

    `claims`: of the agents that are to stay, by name; `size`: as declared; `refused`: claim -> the
    API server's sentence.
    """
    stuck = [name for name in claims if name in refused]
    if stuck:
        claim = claims[stuck[0]]
        more = f"; and {len(stuck) - 1} more claims" if len(stuck) > 1 else ""
        about = f"claim {stuck[0]} stays at {_asked(claim)} instead of {size}"
        why = _why(claim, refused[stuck[0]])
        return Growth("ExpansionRefused", f"{about}: {why}{more}")
    small = [name for name, claim in claims.items() if _is_small(claim, size)]
    if small:
        more = f", and {len(small) - 1} more" if len(small) > 1 else ""
        return Growth("Resizing", f"the volume of claim {small[0]} is not of {size} yet{more}")
    return Growth()


def _why(claim: Json, said: str) -> str:
    class_name = claim["spec"].get("storageClassName")
    if OF_THE_CLASS not in said or not class_name:
        return f"the API server says: {said}"
    return (
        f"StorageClass {class_name} does not let volumes grow: set allowVolumeExpansion: true in it"
        f" if its provisioner can, or write spec.managed.storage.size: {_asked(claim)} and add"
        " agents"
    )


def _asked(claim: Json) -> str:
    return str(claim["spec"]["resources"]["requests"]["storage"])


def _is_small(claim: Json, size: str) -> bool:
    """Return whether the claim has a volume, and that is smaller than `size`.

    The claim itself may not ask for `size` yet.
    """
    capacity = claim.get("status", {}).get("capacity", {}).get("storage")
    return capacity is not None and memory_bytes(str(capacity)) < memory_bytes(size)
