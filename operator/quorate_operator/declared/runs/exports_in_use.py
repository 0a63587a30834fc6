"""Exports that are read or about to be, and exports that a pod is about to delete.

A ZoneBackup of a schedule is given no folder to delete that a ZoneRestore reads, or that an import
that has begun is to go on with.  A ZoneRestore that is created later waits while a pod runs that
was given its source.  Both looks are made while `Writers.beginning` is held, so of two that begin
at once the second one sees the first.

Places are compared without their options: of two stores with the same bucket both are meant.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.jobs.export_place import VOLUME
from quorate.wire.jobs.job_run import RunPhase
from quorate.wire.schema.resource import Resource
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.declared.runs.noted_import import annotated_import, noted_import
from quorate_operator.declared.runs.recoveries import LedZone
from quorate_operator.declared.runs.schedules.retention import place_without_options
from quorate_operator.jobs.backup_job import BACKUP, DELETE
from quorate_operator.jobs.job_end import has_ended
from quorate_operator.kube.api import ApiRefused, KubeApi, find, path_of
from quorate_operator.owned.apply import is_owned

Body = Mapping[str, Any]

_FINAL = [phase.value for phase in RunPhase if phase.is_final]


async def places_in_use(
    api: KubeApi, namespace: str, find_zone: Callable[[str], LedZone | str]
) -> set[str]:
    """Return the places, without options, that unfinished ZoneRestores and imports of a namespace
    read.  `find_zone`: returns the led zone of that name, or a sentence."""
    found = set()
    async for body in _of_kind(api, namespace, ZoneRestore):
        if str((body.get("status") or {}).get("phase")) not in _FINAL:
            found.add(_source(body))
    async for body in api.list(path_of(namespace, Zone.plural)):
        led = find_zone(body["metadata"]["name"])
        told = (annotated_import(body), noted_import(led) if isinstance(led, LedZone) else None)
        found |= {each.place for each in told if each is not None}
    return {place_without_options(place) for place in found}


async def waits_for_deletion(api: KubeApi, namespace: str, source: str) -> str:
    """Return the run that may delete this place, for which a reader waits; empty: none does."""
    place = place_without_options(source)
    async for body in _of_kind(api, namespace, ZoneBackup):
        metadata = body["metadata"]
        if str((body.get("status") or {}).get("phase")) in _FINAL:
            continue
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{BACKUP.job_name(metadata['name'])}"
        job = await find(api, path)
        if job is None or has_ended(job) or not is_owned(job, metadata["uid"]):
            continue
        if place in _deleted_by(job["spec"]["template"]["spec"]):
            return _sentence(job, source)
    chosen = f"{names.LABEL_COMPONENT}={BACKUP.component}"
    # The pod of a Job that is gone may take a while to end.
    async for pod in api.list(f"/api/v1/namespaces/{namespace}/pods", chosen):
        is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if not is_over and place in _deleted_by(pod.get("spec") or {}):
            return _sentence(pod, source)
    return ""


async def _of_kind(api: KubeApi, namespace: str, kind: type[Resource]) -> AsyncIterator[Body]:
    """Yield the objects of a kind; none of a kind that this operator cannot run."""
    try:
        async for body in api.list(path_of(namespace, kind.plural)):
            yield body
    except ApiRefused as refused:
        if refused.status not in (403, 404):
            raise


def _sentence(body: Body, source: str) -> str:
    run = body["metadata"]["labels"][BACKUP.label]
    return f"ZoneBackup {run} is waited for: its pod may delete {source} as an old export"


def _deleted_by(spec: Body) -> Iterator[str]:
    """Yield the places that such a pod was told to delete, without options."""
    volumes = {each["name"]: each for each in spec.get("volumes") or ()}
    claim = volumes.get("exports", {}).get("persistentVolumeClaim", {}).get("claimName", "")
    for container in spec.get("containers") or ():
        arguments = container.get("args") or ()
        for target in _values(arguments, "--target="):
            beside = place_without_options(target).rpartition("/")[0]
            if claim:
                beside = f"{claim}:{beside.removeprefix(VOLUME).removeprefix('/')}"
            for folder in _values(arguments, DELETE):
                yield f"{beside}{'' if beside.endswith(':') else '/'}{folder}"


def _values(arguments: Iterable[str], option: str) -> Iterator[str]:
    return (each.removeprefix(option) for each in arguments if each.startswith(option))


def _source(body: Body) -> str:
    """Return the place that a ZoneRestore reads, even if it cannot be parsed."""
    source = (body.get("spec") or {}).get("source") or {}
    claim, s3 = source.get("persistentVolumeClaim") or {}, source.get("s3") or {}
    return str(s3.get("url") or f"{claim.get('claimName')}:{claim.get('path')}")
