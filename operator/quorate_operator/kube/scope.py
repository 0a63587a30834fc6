"""The namespaces that an operator serves, and the one of its Lease."""

from collections.abc import Sequence
from dataclasses import dataclass

EVERYWHERE = ""
"""The place of one list, or one watch, of all namespaces."""


def place_text(place: str) -> str:
    """Return a text that names a place."""
    return f"namespace {place}" if place else "all namespaces"


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespaces that are served, each once; empty: all of them.

    Operators that share a Lease must serve the same namespaces: only one of them leads.
    """

    namespaces: tuple[str, ...]
    lease_namespace: str

    @property
    def places(self) -> tuple[str, ...]:
        """The places to list and to watch: all namespaces at once, or each that is served."""
        return self.namespaces or (EVERYWHERE,)

    def place_of(self, namespace: str) -> str:
        """Return the place whose watch shows objects of `namespace`."""
        return namespace if self.namespaces else EVERYWHERE

    def __str__(self) -> str:
        return f"namespaces {', '.join(self.namespaces)}" if self.namespaces else "all namespaces"


def make_scope(
    namespaces: Sequence[str], is_everywhere: bool, lease_namespace: str, own: str
) -> Scope:
    """Make a scope from the command line.

    `own`: the operator's own namespace, served if none is named.  The Lease is in `lease_namespace`
    if that is given; else beside the clusters if one namespace is served, as in earlier versions;
    else in the operator's own namespace.
    """
    served = () if is_everywhere else tuple(dict.fromkeys(namespaces)) or (own,)
    return Scope(served, lease_namespace or (served[0] if len(served) == 1 else own))
