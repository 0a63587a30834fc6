"""The namespaces that an operator serves, and the one of its Lease."""

from collections.abc import Sequence
from dataclasses import dataclass

EVERYWHERE = ""
"""The place of one list, or one watch, of all namespaces."""


def place_text(place: str) -> str:
    """A place, for people."""
    return f"namespace {place}" if place else "all namespaces"


@dataclass(frozen=True, slots=True)
class Scope:
    """`namespaces`: those that are served, each once; empty: all of them.

    Operators that share a Lease must serve the same namespaces: only one of them leads."""

    namespaces: tuple[str, ...]
    lease_namespace: str

    @property
    def places(self) -> tuple[str, ...]:
        """The places to list and to watch: all namespaces at once, or each that is served."""
        return self.namespaces or (EVERYWHERE,)

    def place_of(self, namespace: str) -> str:
        """The place in which objects of `namespace` are seen."""
        return namespace if self.namespaces else EVERYWHERE

    def __str__(self) -> str:
        return f"namespaces {', '.join(self.namespaces)}" if self.namespaces else "all namespaces"


def make_scope(
    namespaces: Sequence[str], is_everywhere: bool, lease_namespace: str, own: str
) -> Scope:
    """Make a scope from the command line.  `own`: the operator's own namespace, which is served
    when none is named.

    The Lease is where it was asked for; else beside the clusters when one namespace is served, as
    by earlier versions, and in the operator's own namespace when several are."""
    served = () if is_everywhere else tuple(dict.fromkeys(namespaces)) or (own,)
    return Scope(served, lease_namespace or (served[0] if len(served) == 1 else own))
