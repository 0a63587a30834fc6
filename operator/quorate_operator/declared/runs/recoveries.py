"""Runs the ZoneRecoveries of one namespace: each object once, with the result in its status.

    nothing, Waiting --> Running --> Done, Refused or Unknown
                     --> Shown or Refused, of a dry run

`Running` is written first, under compare-and-set, and only then is anything done.  So of two
operators only one runs it, and an operator that finds an object which another one was running does
not run it again: it cannot know how far the other one came.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quorate.facts.errors import WireError
from quorate.protocol.metastore import OutcomeUnknown
from quorate.protocol.recovery import Recovery, RecoveryAnswer
from quorate.wire.zone_recovery import (
    RecoveryPhase,
    ZoneRecovery,
    ZoneRecoveryStatus,
    recovery_status,
)
from quorate_operator.kube.api import KubeApi, is_same, path_of, set_own_status
from quorate_operator.mastership.runner import Runner
from quorate_operator.process.clock import rfc3339

_log = logging.getLogger("quorate.recoveries")

RECOVERY_S = 2.0
"""Seconds between looks at an object whose zone is not led yet."""

Body = Mapping[str, Any]

_NOTHING = RecoveryAnswer()
_UNKNOWN = RecoveryPhase.UNKNOWN
_INTERRUPTED = (
    "the operator ended while it was being done: look at the partitions, and create another"
    " ZoneRecovery for those whose rows have not changed"
)


class LedZone(NamedTuple):
    """A zone that is led: its runner, its id in the metastore, the name of its cluster, and the
    object as the watch shows it."""

    runner: Runner
    uid: str
    cluster: str
    body: Body


class NoZone(str):
    """The sentence of what is waited for, where no Zone of that name was seen."""


class Recoveries:
    """The ZoneRecoveries of one namespace.

    `find`: returns the led zone of that name, or a sentence on what is waited for.
    """

    def __init__(self, api: KubeApi, namespace: str, find: Callable[[str], LedZone | str]) -> None:
        self._api = api
        self._namespace = namespace
        self._find = find
        self._bodies: dict[str, Body] = {}
        self._begun: dict[str, str] = {}
        """By name: the uid of one that this process has run: what the watch shows may be older."""
        self._results: dict[str, ZoneRecoveryStatus] = {}
        """By uid: results that are not written yet."""

    def __bool__(self) -> bool:
        """Whether any object is still to be run."""
        return bool(self._bodies)

    def seen(self, body: Body) -> bool:
        """Take an object that is new or changed; return whether it is to be looked at."""
        metadata = body["metadata"]
        if metadata["uid"] == self._begun.get(metadata["name"]) or is_final(body):
            return False
        self._bodies[metadata["name"]] = body
        return True

    def gone(self, name: str) -> None:
        """Forget an object that was deleted."""
        self._bodies.pop(name, None)
        self._results.pop(self._begun.pop(name, ""), None)

    async def reconcile(self, name: str) -> float | None:
        """Run an object, if it can be; return the seconds until it is to be looked at again.

        None: it was run.  Raises the API's errors.
        """
        body = self._bodies.get(name)
        if body is None:
            return None
        uid = body["metadata"]["uid"]
        if uid == self._begun.get(name):  # the result could not be written
            await self._tell(body, self._results.get(uid) or _status(_UNKNOWN, _INTERRUPTED))
            return None
        if _phase(body) == RecoveryPhase.RUNNING:
            await self._tell(body, _status(_UNKNOWN, _INTERRUPTED))
            return None
        try:
            recovery = ZoneRecovery.parse_stored(body)
        except WireError as error:
            await self._tell(body, _status(RecoveryPhase.REFUSED, str(error)))
            return None
        led = self._find(recovery.spec.zone_ref.name)
        if isinstance(led, str):
            if (body.get("status") or {}).get("message") != led:
                stored = await self._tell(body, _status(RecoveryPhase.WAITING, led))
                if stored is not None and self._is_known(body):
                    self._bodies[name] = stored
            return RECOVERY_S
        if not recovery.spec.dry_run:
            # Refused with a conflict if another process began it, or what was seen of it is old.
            running = _status(RecoveryPhase.RUNNING, "it is being done")
            stored = await self._tell(body, running, body["metadata"]["resourceVersion"])
            if stored is None:
                return None
        self._begun[name] = uid
        self._results[uid] = await _run(led, recovery.asked)
        _log.info("zonerecovery %s/%s: %s", self._namespace, name, self._results[uid].message)
        await self._tell(body, self._results[uid])
        return None

    def _is_known(self, body: Body) -> bool:
        """Return whether the object is to be run, not another one of its name."""
        return is_same(self._bodies.get(body["metadata"]["name"]), body)

    async def _tell(
        self, body: Body, status: ZoneRecoveryStatus, revision: str = ""
    ) -> Body | None:
        """Write the status; return the object as it is now, None if it is not there any more.

        `revision`: only over this one.
        """
        metadata = body["metadata"]
        fresh = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        path = path_of(self._namespace, ZoneRecovery.plural, metadata["name"])
        stored = await set_own_status(self._api, path, metadata["uid"], fresh, revision)
        is_over = status.phase is not None and status.phase.is_final
        if is_over or stored is None:
            self._results.pop(metadata["uid"], None)
            if self._is_known(body):
                self._begun[metadata["name"]] = metadata["uid"]
                del self._bodies[metadata["name"]]
        return stored


async def _run(led: LedZone, asked: Recovery) -> ZoneRecoveryStatus:
    """Have the zone's master do what is asked; return the result."""
    answer = led.runner.recover(led.uid, asked)
    if answer is None:
        gone = "nothing was done: this operator leads the Zone no more; create the object again"
        return _status(RecoveryPhase.REFUSED, gone)
    if answer.refusals:
        return _status(RecoveryPhase.REFUSED, "nothing was done", answer)
    if asked.dry_run:
        message = (
            "nothing was changed: to have it done, create another ZoneRecovery with dryRun: false"
            " and these rowVersions"
        )
        return _status(RecoveryPhase.SHOWN, message, answer)
    try:
        await led.runner.rows_stored(led.uid, answer)
    except OutcomeUnknown:
        message = "it was decided, but the rows are not known to be written: look at the partitions"
        return _status(_UNKNOWN, message, answer)
    done = "the copies are being dropped, and are made anew" if asked.erase else "it is done"
    return _status(RecoveryPhase.DONE, done, answer)


def _status(
    phase: RecoveryPhase, message: str, answer: RecoveryAnswer = _NOTHING
) -> ZoneRecoveryStatus:
    return recovery_status(phase, message, rfc3339(), answer)


def is_final(body: Body) -> bool:
    """Return whether the object was run."""
    return _phase(body) in {phase.value for phase in RecoveryPhase if phase.is_final}


def _phase(body: Body) -> str:
    return str((body.get("status") or {}).get("phase", ""))
