"""Claims that are to grow: which are refused, and why, and which have not grown yet.

Sizes of claims and volumes may be written by others, as any quantity of Kubernetes.  A size that
cannot be read is not known: nothing is to grow because of it.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

Json = Mapping[str, Any]

_UNITS: dict[str, int | Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
    "Pi": 1 << 50,
    "Ei": 1 << 60,
}
_QUANTITY = re.compile(
    r"\+?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2}|[KMGTPE]i|[numkMGTPE])?"
)

OF_THE_CLASS = "must support resize"
"""The end of the API server's refusal if the StorageClass has no allowVolumeExpansion."""


class Growth(NamedTuple):
    """Volumes smaller than declared: one word and a sentence; both are empty if all have grown."""

    reason: str = ""
    message: str = ""


def quantity_bytes(quantity: int | str) -> int | None:
    """Return the bytes of a quantity of Kubernetes, rounded up; None if it cannot be read."""
    found = _QUANTITY.fullmatch(str(quantity))
    if found is None:
        return None
    digits, suffix = found[1], found[2] or ""
    if suffix in _UNITS:
        return math.ceil(Fraction(digits) * _UNITS[suffix])
    return math.ceil(Fraction(f"{digits}{suffix}"))


def larger(there: str, declared: str) -> str:
    """Return the larger size; that of the existing claim if the two cannot be compared."""
    return declared if _is_smaller(there, declared) else there


def is_growth(wanted: Json, there: Json | None) -> bool:
    """Return whether `wanted` is a claim that exists with a smaller size."""
    if wanted["kind"] != "PersistentVolumeClaim" or there is None:
        return False
    return _is_smaller(_asked(there), _asked(wanted))


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
    return capacity is not None and _is_smaller(str(capacity), size)


def _is_smaller(size: str, than: str) -> bool:
    """Return whether both sizes are known, and the first is the smaller one."""
    known, other = quantity_bytes(size), quantity_bytes(than)
    return known is not None and other is not None and known < other
