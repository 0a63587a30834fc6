"""The note at a Zone of the import that has begun: the annotation, and what it is compared with.

The zone's record has it, too, from the note until its removal.  So a Zone that was deleted
meanwhile and declared again, whose data was kept, still has an import that has begun.

The watch may show a Zone late.  A write of what it shows, with its revision, is refused with a
conflict if the Zone has changed: so a decision is only made from what is still there.
"""

from collections.abc import Mapping
from typing import Any

from quorate.wire.restoring import RESTORING, Restoring
from quorate.wire.zone import Zone, begun_import
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.kube.api import ApiRefused, KubeApi, is_same, path_of


def noted_import(led: LedZone) -> Restoring | None:
    """Return the import that has begun at this Zone, or at an earlier one with its data."""
    record, metadata = led.runner.known_zone(led.uid), led.body["metadata"]
    importing = record.importing if record is not None else ""
    return begun_import(metadata.get("annotations") or {}, metadata["uid"], importing)


def is_in_record(led: LedZone, note: Restoring) -> bool:
    """Return whether the stored record of the zone has this note, begun or not."""
    wanted = f"{led.body['metadata']['uid']} {note._replace(not_begun=False).text}"
    return led.runner.written_import(led.uid) == wanted


def annotated_import(body: Mapping[str, Any]) -> Restoring | None:
    """Return the import that is noted at this Zone, as the watch shows it."""
    annotations = body["metadata"].get("annotations") or {}
    return Restoring.parse(annotations.get(RESTORING, ""))


def sentence(zone: str, begun: Restoring) -> str:
    """Return what is waited for while an import is under way."""
    return f"an import of {begun.place} into Zone {zone} has begun and is not done"


async def note_import(api: KubeApi, namespace: str, led: LedZone, text: str | None) -> LedZone:
    """Note an import at the Zone, or remove the note; return the zone with the Zone as it is now.

    Raises ApiRefused if the Zone is not as it was seen, also where the note is as it is to be.
    """
    metadata = led.body["metadata"]
    path = path_of(namespace, Zone.plural, metadata["name"])
    body = await api.annotate(path, {RESTORING: text}, metadata["resourceVersion"])
    return led._replace(body=body)


async def note_again(
    api: KubeApi, namespace: str, led: LedZone, mine: Restoring, before: Restoring
) -> LedZone:
    """Note `before` again in place of `mine`; return the zone with the Zone as it is now.

    The Zone may have changed since `mine` was noted.  If it has another note, that one stays.
    """
    name = led.body["metadata"]["name"]
    while True:
        try:
            return await note_import(api, namespace, led, before.text)
        except ApiRefused as refused:
            if not refused.is_conflict:
                raise
        zones = api.list(path_of(namespace, Zone.plural), name=name)  # it may not get a Zone
        there = [each async for each in zones if is_same(each, led.body)]
        led = led._replace(body=there[0]) if there else led
        if not there or annotated_import(led.body) != mine:
            return led


async def prove_note(api: KubeApi, namespace: str, led: LedZone) -> Restoring | None:
    """Return the import that has begun at the Zone now.

    Raises ApiRefused if the Zone is not as it was seen.
    """
    annotations = led.body["metadata"].get("annotations") or {}
    await note_import(api, namespace, led, annotations.get(RESTORING))
    return noted_import(led)
