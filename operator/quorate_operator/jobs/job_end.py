"""The end of a Job: whether it has ended, what its pods told, or why there is no result."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from quorate.facts.errors import WireError
from quorate.wire.schema.resource import shortened

Json = Mapping[str, Any]
Result = TypeVar("Result")


class JobEnd(NamedTuple):
    """A Job that has ended, and its pods that are still there.

    `not_started`: what kept its pod from running when it was last seen.
    """

    job: Json
    pods: list[Json]
    not_started: str = ""

    @property
    def text(self) -> str:
        """All that is asked of it later, as JSON."""
        metadata, spec = self.job["metadata"], self.job.get("spec") or {}
        containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
        job = {
            "metadata": {each: metadata.get(each) for each in ("labels", "creationTimestamp")},
            "spec": {
                "activeDeadlineSeconds": spec.get("activeDeadlineSeconds"),
                "template": {"spec": {"containers": [_chosen(each) for each in containers]}},
            },
            "status": self.job.get("status") or {},
        }
        pods = [
            {
                "status": {
                    "containerStatuses": [
                        {"name": each.get("name"), "state": each.get("state")}
                        for each in (pod.get("status") or {}).get("containerStatuses") or ()
                    ]
                }
            }
            for pod in self.pods
        ]
        return json.dumps({"job": job, "pods": pods, "notStarted": self.not_started})


def _chosen(container: Json) -> Json:
    return {"name": container.get("name"), "args": container.get("args") or []}


def read_end(text: str) -> JobEnd | None:
    """Return the end of a Job that was kept as text; None: none was."""
    try:
        kept = json.loads(text)
        return JobEnd(kept["job"], kept["pods"], kept["notStarted"])
    except (ValueError, KeyError, TypeError):
        return None


def has_ended(job: Json) -> bool:
    """Return whether the Job is complete or has failed: no pod of it will run any more."""
    return any(_is_true(job, kind) for kind in ("Complete", "Failed"))


def told(
    pods: Sequence[Json], container: str, decode: Callable[[str], Result]
) -> list[Result | None]:
    """Return what each pod that has ended told, the first to end first; None: nothing."""

    def told_by(end: Json) -> Result | None:
        try:
            return decode(str(end.get("message") or ""))
        except WireError:
            return None

    return [told_by(end) for end in _ends(pods, container)]


def result_of_job(
    job: Json,
    pods: Sequence[Json],
    container: str,
    decode: Callable[[str], Result],
    outweighs: Callable[[Result], bool],
    not_started: str = "",
    less: str = "",
) -> Result | str:
    """Return the result of a Job that has ended, or why there is none.

    A result that outweighs counts whatever another pod told.  Otherwise that of the last pod does,
    unless the deadline ended the Job: then the pod that ran last has told nothing.

    `pods`: those of it that are still there.  `not_started`, `less`: see `why_untold`.
    """
    results = told(pods, container, decode)
    for result in results:
        if result is not None and outweighs(result):
            return result
    if results and results[-1] is not None and not is_late(job):
        return results[-1]
    return why_untold(job, pods, container, not_started, less)


def why_untold(
    job: Json, pods: Sequence[Json], container: str, not_started: str, less: str = ""
) -> str:
    """Return why the Job has no result, with the way out.

    `not_started`: what kept its pod from running when it was last seen, if none ran; a late Job's
    pods are deleted.  `less`: another way out of a late one.
    """
    if is_late(job):
        allowed = job.get("spec", {}).get("activeDeadlineSeconds")
        if not_started:
            return f"within deadlineSeconds ({allowed}) {not_started}"
        return f"it was not done within deadlineSeconds ({allowed}): allow it more{less}"
    ends = _ends(pods, container)
    if not ends:
        said = _condition(job, "Failed").get("message") or "its pods are gone"
        return f"its Job has no result: {said}"
    last = ends[-1]
    if last.get("reason") == "OOMKilled":
        return "its pod needed more memory than its limit: give it more (resources)"
    lines = str(last.get("message") or "").strip().splitlines()
    said = f": {shortened(lines[-1].strip())}" if lines else ""
    return f"its pod ended with exit code {last.get('exitCode')} and no result{said}"


def is_late(job: Json) -> bool:
    """Return whether the Job was ended by its deadline."""
    return _condition(job, "Failed").get("reason") == "DeadlineExceeded"


def _ends(pods: Sequence[Json], container: str) -> list[Json]:
    found = filter(None, (_end_of(pod, container) for pod in pods))
    return sorted(found, key=lambda end: str(end.get("finishedAt", "")))


def _end_of(pod: Json, container: str) -> Json | None:
    """Return how the pod's container ended; None if it has not."""
    for each in pod.get("status", {}).get("containerStatuses") or ():
        if each.get("name") == container:
            ended: Json | None = (each.get("state") or {}).get("terminated")
            return ended
    return None


def _is_true(job: Json, kind: str) -> bool:
    return _condition(job, kind).get("status") == "True"


def _condition(job: Json, kind: str) -> Json:
    found = job.get("status", {}).get("conditions") or ()
    return next((each for each in found if each.get("type") == kind), {})
