"""The project's kinds that can be used: the API server may lack CRDs, or the operator rights."""

from collections.abc import Collection

from quorate.wire.schema.resource import GROUP
from quorate_operator.kube.api import GROUP_PATH, ApiRefused, KubeApi, find, path_of


async def known_kinds(api: KubeApi) -> set[str]:
    """Return the plurals of the kinds that the API server knows.  Raises ApiRefused, ApiUnclear."""
    found = await find(api, GROUP_PATH)
    return {each["name"] for each in found["resources"]} if found is not None else set()


def unknown_kinds(known: Collection[str], plurals: Collection[str]) -> str:
    """Return a sentence that names those of `plurals` that are not known; empty if none is."""
    missing = [plural for plural in plurals if plural not in known]
    if not missing:
        return ""
    return (
        f"the API server does not know {', '.join(missing)} of {GROUP}: kubectl apply --filename"
        " crds/"
    )


async def unusable_kinds(
    api: KubeApi, place: str, known: Collection[str], plurals: Collection[str]
) -> dict[str, str]:
    """Return those of `plurals` that are not known or may not be listed, each with the reason.

    `place`: the namespace to list; "": all of them.  Raises ApiRefused, ApiUnclear.
    """
    unknown = unknown_kinds(known, plurals)
    found = {
        plural: await _refusal(api, place, plural) if plural in known else unknown
        for plural in plurals
    }
    return {plural: why for plural, why in found.items() if why}


async def _refusal(api: KubeApi, place: str, plural: str) -> str:
    try:
        await api.get(f"{path_of(place, plural)}?limit=1")
    except ApiRefused as refused:
        if refused.status not in (403, 404):
            raise
        return str(refused)
    return ""
