"""Pausing of a Zone or a StorageCluster: changes of its spec wait, all else continues.

While an object is paused its spec is not acted on: addresses are neither dialed anew nor drained, a
zone is neither changed nor deleted, a new one is not created.  The last spec that was acted on
stays in force, and failover, catch-up and the migrations it asks for go on.
"""

from quorate.wire.schema.resource import Metadata
from quorate_operator import names

WAY_OUT = f"remove the annotation {names.ANNOTATION_PAUSED}"


def pause_of(kind: str, metadata: Metadata) -> str:
    """Return a sentence that says that the object is paused; empty if it is not."""
    if metadata.annotations.get(names.ANNOTATION_PAUSED) != "true":
        return ""
    return (
        f"{kind} {metadata.name} has the annotation {names.ANNOTATION_PAUSED}: changes of its spec "
        f"wait, failover continues; {WAY_OUT} to resume"
    )
