"""The runs that write rows of a zone by themselves: of each zone, one runs at a time.

These are ZoneRestores, and ZoneRepairs that are no dry run.  The Jobs and pods of all of them have
the uid of the Zone that they were made for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.jobs.job_run import RunPhase
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.restoring import Restoring
from quorate.wire.schema.resource import Resource
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.declared.runs.job_runs import zone_of
from quorate_operator.declared.runs.recoveries import LedZone, NoZone
from quorate_operator.jobs.backup_job import BACKUP
from quorate_operator.jobs.job import JobOwner, Work
from quorate_operator.jobs.repair_job import REPAIR
from quorate_operator.jobs.restore_job import CHECK, RESTORE, run_word
from quorate_operator.kube.api import ApiRefused, KubeApi, find, path_of
from quorate_operator.owned.apply import is_owned

Body = Mapping[str, Any]
Json = dict[str, Any]

_KINDS: tuple[tuple[type[Resource], Work], ...] = ((ZoneRestore, CHECK), (ZoneRepair, REPAIR))
"""Each kind, and the first Job of its objects."""
_FINAL = [phase.value for phase in RunPhase if phase.is_final]


class NotOfThisZone(Exception):
    """The Zone that a Job was made for is not there any more."""


class Writers:
    """The runs of one namespace that write.

    `beginning` is held from the look at the others of a zone until a Job is made, also that of a
    ZoneBackup, which is not to run beside an import.  `find`: returns
    the led zone of that name, or a sentence on what is waited for.
    """

    def __init__(self, api: KubeApi, namespace: str, find: Callable[[str], LedZone | str]) -> None:
        self._api = api
        self._namespace = namespace
        self._find = find
        self.beginning = asyncio.Lock()

    async def waits_for(self, run: JobOwner, led: LedZone) -> str:
        """Return the other run of the zone that is waited for; empty: none."""
        zone = run.spec.zone_ref.name
        for kind, first in _KINDS:
            async for body in self._bodies(kind):
                is_me = body["metadata"]["uid"] == run.metadata.uid
                if zone_of(body) != zone or is_me or not _writes(kind, body):
                    continue
                if await self._has_begun(first, body):
                    name = body["metadata"]["name"]
                    return f"{kind.kind_name()} {name} of the same zone is waited for"
        # Those of deleted objects may take a while to end.
        for kind, first in _KINDS:
            async for pod in self._pods_that_write(first, zone, led.body["metadata"]["uid"]):
                if not await self._is_of(pod, run):
                    about = f"pod {pod['metadata']['name']} of another {kind.kind_name()}"
                    return f"{about} is waited for"
        return ""

    async def waits_for_backup(self, zone: str) -> str:
        """Return the ZoneBackup of the zone that an import waits for; empty: none."""
        async for body in self._bodies(ZoneBackup):
            if zone_of(body) == zone and await self._has_begun(BACKUP, body):
                return f"ZoneBackup {body['metadata']['name']} of the same zone is waited for"
        return ""

    async def import_beside(self, zone: str, job: Body) -> str:
        """Return the import into the zone whose Job was there while this one was; empty: none.

        One whose times are not known counts.
        """
        async for body in self._bodies(ZoneRestore):
            if zone_of(body) != zone:
                continue
            other = await self._job_of(RESTORE, body)
            if (
                other is not None
                and _began(other) < ended_at(job)
                and _began(job) < ended_at(other)
            ):
                return f"ZoneRestore {body['metadata']['name']} was importing into Zone {zone}"
        return ""

    async def only_waits(self, note: Restoring) -> bool:
        """Return whether a note is of a ZoneRestore that has no Job that imports yet."""
        async for body in self._bodies(ZoneRestore):
            phase = str((body.get("status") or {}).get("phase"))
            if run_word(body["metadata"]["uid"]) == note.run and phase not in _FINAL:
                return await self._job_of(RESTORE, body) is None
        return False

    async def has_no_restore(self, note: Restoring) -> bool:
        """Return whether the ZoneRestore of a note is not there any more."""
        try:
            bodies = self._api.list(path_of(self._namespace, ZoneRestore.plural))
            return note.run not in [run_word(each["metadata"]["uid"]) async for each in bodies]
        except ApiRefused as refused:
            if refused.status not in (403, 404):
                raise
            return False  # it is not known

    async def is_gone(self, led: LedZone | str, zone: str) -> bool:
        """Return whether the Zone is not there any more.  `led`: as it was found."""
        return isinstance(led, NoZone) and not await self._is_there(zone)

    async def zone_of_job(self, zone: str, job: Body) -> LedZone | str:
        """Return the zone that the Job was made for, or what is waited for.

        Raises NotOfThisZone.
        """
        led = self._find(zone)
        if await self.is_gone(led, zone):
            raise NotOfThisZone(f"Zone {zone} was deleted meanwhile")
        if isinstance(led, LedZone):
            labels = job["metadata"].get("labels") or {}
            if led.body["metadata"]["uid"] != labels.get(names.LABEL_ZONE_UID):
                raise NotOfThisZone(f"Zone {zone} was replaced by another one meanwhile")
        return led

    async def _bodies(self, kind: type[Resource]) -> AsyncIterator[Body]:
        """Yield the objects of a kind; none of a kind that this operator cannot run."""
        try:
            async for body in self._api.list(path_of(self._namespace, kind.plural)):
                yield body
        except ApiRefused as refused:
            if refused.status not in (403, 404):
                raise

    async def _has_begun(self, first: Work, body: Body) -> bool:
        """Return whether an object runs, or has its first Job, which its status says later."""
        phase = str((body.get("status") or {}).get("phase"))
        if phase == RunPhase.RUNNING or phase in _FINAL:
            return phase == RunPhase.RUNNING
        return await self._job_of(first, body) is not None

    async def _job_of(self, work: Work, body: Body) -> Json | None:
        """Return the Job of an object for this work; None: there is none."""
        job = await self._job(work.job_name(body["metadata"]["name"]))
        return job if job is not None and is_owned(job, body["metadata"]["uid"]) else None

    async def _job(self, name: str) -> Json | None:
        return await find(self._api, f"/apis/batch/v1/namespaces/{self._namespace}/jobs/{name}")

    async def _pods_that_write(self, work: Work, zone: str, uid: str) -> AsyncIterator[Json]:
        """Yield the pods that write into a zone of this name and have not ended.

        Those of an earlier Zone write into the same data if that was kept.
        """
        chosen = f"{names.LABEL_COMPONENT}={work.component}"
        async for pod in self._api.list(f"/api/v1/namespaces/{self._namespace}/pods", chosen):
            of = pod["metadata"].get("labels", {}).get(names.LABEL_ZONE_UID)
            is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            is_same = of == uid or _zone_of_pod(pod, work) == zone
            if of is not None and not is_over and is_same:
                yield pod

    async def _is_of(self, pod: Json, run: JobOwner) -> bool:
        """Return whether a pod is of a Job of this object, not of an earlier one of its name."""
        for owner in pod["metadata"].get("ownerReferences") or ():
            job = await self._job(owner["name"])
            if job is not None and is_owned(pod, job["metadata"]["uid"]):
                return is_owned(job, run.metadata.uid)
        return False

    async def _is_there(self, zone: str) -> bool:
        """Return whether there is a Zone of this name, whatever the watch has shown."""
        zones = self._api.list(path_of(self._namespace, Zone.plural))
        return zone in [each["metadata"]["name"] async for each in zones]


def _zone_of_pod(pod: Body, work: Work) -> str:
    """Return the name of the zone that a pod works on: the second word of its command.

    Empty: no container does this work, or it has no such command.
    """
    words = arguments_of(pod, work)
    return words[1] if len(words) > 1 else ""


def arguments_of(pod: Body, work: Work) -> list[str]:
    """Return the arguments of the container that does this work, beside which others may have been
    put; empty: there is none."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    named = [each for each in containers if each.get("name") == work.component]
    return [str(each) for container in named for each in container.get("args") or ()]


def _began(job: Body) -> str:
    return str(job["metadata"].get("creationTimestamp") or "")


def ended_at(job: Body) -> str:
    """Return the time at which a Job has ended; one after all others: not yet, or not known."""
    status = job.get("status") or {}
    failed = [each for each in status.get("conditions") or () if each.get("type") == "Failed"]
    times = [status.get("completionTime"), *(each.get("lastTransitionTime") for each in failed)]
    return next((str(each) for each in times if each), "never")


def _writes(kind: type[Resource], body: Body) -> bool:
    """Return whether an object writes rows.  One without the field was stored by another CRD."""
    return kind is not ZoneRepair or (body.get("spec") or {}).get("dryRun") is False
