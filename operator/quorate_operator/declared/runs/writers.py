"""The runs that write rows of a zone by themselves: of each zone, one runs at a time.

These are ZoneRestores, and ZoneRepairs that are no dry run.  The Jobs and pods of all of them have
the uid of the Zone that they were made for.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from quorate.wire.jobs.job_run import RunPhase
from quorate.wire.jobs.zone_backup import ZoneBackup
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.jobs.zone_restore import ZoneRestore
from quorate.wire.resource import Resource
from quorate.wire.zone import Zone
from quorate_operator import names
from quorate_operator.declared.runs.job_runs import zone_of
from quorate_operator.declared.runs.recoveries import LedZone, NoZone
from quorate_operator.jobs.backup_job import BACKUP
from quorate_operator.jobs.job import JobOwner, Work
from quorate_operator.jobs.repair_job import REPAIR
from quorate_operator.jobs.restore_job import CHECK
from quorate_operator.kube.api import ApiRefused, KubeApi, find, path_of
from quorate_operator.owned.apply import is_owned

Body = Mapping[str, Any]

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
        chosen = f"{names.LABEL_ZONE_UID}={led.body['metadata']['uid']}"
        async for pod in self._api.list(f"/api/v1/namespaces/{self._namespace}/pods", chosen):
            is_over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            labels = pod["metadata"].get("labels", {})
            for kind, first in _KINDS:
                of = labels.get(first.label)
                is_mine = (kind.kind_name(), of) == (run.kind_name(), run.metadata.name)
                if of is not None and not is_over and not is_mine:
                    about = f"pod {pod['metadata']['name']} of another {kind.kind_name()}"
                    return f"{about} is waited for"
        return ""

    async def waits_for_backup(self, zone: str) -> str:
        """Return the ZoneBackup of the zone that an import waits for; empty: none."""
        async for body in self._bodies(ZoneBackup):
            if zone_of(body) == zone and await self._has_begun(BACKUP, body):
                return f"ZoneBackup {body['metadata']['name']} of the same zone is waited for"
        return ""

    async def zone_of_job(self, zone: str, job: Body) -> LedZone | str:
        """Return the zone that the Job was made for, or what is waited for.

        Raises NotOfThisZone.
        """
        led = self._find(zone)
        if isinstance(led, NoZone) and not await self._is_there(zone):
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
        metadata, phase = body["metadata"], str((body.get("status") or {}).get("phase"))
        if phase == RunPhase.RUNNING or phase in _FINAL:
            return phase == RunPhase.RUNNING
        name = first.job_name(metadata["name"])
        job = await find(self._api, f"/apis/batch/v1/namespaces/{self._namespace}/jobs/{name}")
        return job is not None and is_owned(job, metadata["uid"])

    async def _is_there(self, zone: str) -> bool:
        """Return whether there is a Zone of this name, whatever the watch has shown."""
        zones = self._api.list(path_of(self._namespace, Zone.plural))
        return zone in [each["metadata"]["name"] async for each in zones]


def _writes(kind: type[Resource], body: Body) -> bool:
    """Return whether an object writes rows.  One without the field was stored by another CRD."""
    return kind is not ZoneRepair or (body.get("spec") or {}).get("dryRun") is False
