"""The project's kinds that the API server knows: none without their CRDs, which may be deleted."""

from collections.abc import Sequence

from quorate.wire.resource import GROUP
from quorate_operator.kube.api import GROUP_PATH, KubeApi, find


async def unknown_kinds(api: KubeApi, plurals: Sequence[str]) -> str:
    """Return a sentence that names those of `plurals` that are unknown; empty if none is.

    Raises ApiRefused, ApiUnclear.
    """
    found = await find(api, GROUP_PATH)
    known = {each["name"] for each in found["resources"]} if found is not None else set()
    missing = [plural for plural in plurals if plural not in known]
    if not missing:
        return ""
    return (
        f"the API server does not know {', '.join(missing)} of {GROUP}: kubectl apply --filename"
        " crds/"
    )
