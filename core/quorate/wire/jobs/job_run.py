"""The fields that all kinds share of which each object is one Job: how it is run, how far it is."""

import enum
from typing import Annotated

from pydantic import Field

from quorate.facts.read_limit import MAX_MIB_PER_SECOND_PER_AGENT, MIB_PER_SECOND_MAX
from quorate.wire.managed_agents import FreeForm, Labels, PodAdditions
from quorate.wire.resource import Integer, Part, Rule, Text
from quorate.wire.zone import ObjectName

DEADLINE_S = 6 * 3600
DEADLINE_MAX_S = 30 * 24 * 3600
TTL_S = 24 * 3600
TTL_MIN_S = 600
"""The operator has so long to read the result from the pod."""
TTL_MAX_S = 365 * 24 * 3600


class RunPhase(enum.StrEnum):
    """How far the run of an object is."""

    WAITING = "Waiting"
    """The zone is not led yet, or is paused; or the Job cannot be made."""
    RUNNING = "Running"
    """Its Job was made."""
    FINISHED = "Finished"
    """It has ended; another field says how."""
    REFUSED = "Refused"
    """It was not run."""

    @property
    def is_final(self) -> bool:
        """Whether the object is not looked at any more."""
        return self in (RunPhase.FINISHED, RunPhase.REFUSED)


class JobRun(Part):
    """A zone, and the pod that works on it."""

    zone_ref: ObjectName
    """The Zone, in the same namespace."""
    deadline_seconds: Annotated[Integer, Field(ge=10, le=DEADLINE_MAX_S)] = DEADLINE_S
    """How long the run may take; then it is ended, without a result."""
    ttl_seconds_after_finished: Annotated[Integer, Field(ge=TTL_MIN_S, le=TTL_MAX_S)] = TTL_S
    """How long the Job, its pod and their log are kept after the end.  The object with the result
    stays."""
    resources: FreeForm = Field(default_factory=dict)
    """Requests and limits of the container, as in a pod."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes that the pod may run on."""
    tolerations: list[FreeForm] = Field(default_factory=list, max_length=100)
    """Taints that the pod tolerates, as in a pod."""
    pod_template: PodAdditions | None = None
    """Additions to the pod."""


class ReadingRun(JobRun):
    """A zone, and the pod that reads copies of it."""

    max_mib_per_second_per_agent: Annotated[Integer, Field(ge=1, le=MIB_PER_SECOND_MAX)] | None = (
        Field(None, alias="maxMiBPerSecondPerAgent")
    )
    """MiB per second of rows and updates that the pod gets from each agent, at most, whatever it
    reads at the same time.  Runs with a limit share each agent: together they get the lowest of
    their limits.  Absent: no limit."""

    @property
    def limit_options(self) -> tuple[str, ...]:
        """The option of the program in the pod; empty: no limit."""
        limit = self.max_mib_per_second_per_agent
        return () if limit is None else (f"{MAX_MIB_PER_SECOND_PER_AGENT}={limit}",)


class JobStatus(Part):
    """How far the run is."""

    phase: RunPhase | None = None
    """Waiting, Running, Finished, or Refused: it was not run."""
    message: Text = ""
    """The same, or the result, in a sentence, with what to do next."""
    start_time: Text = ""
    """When the Job was made, RFC 3339."""
    completion_time: Text = ""
    """When the result was read, RFC 3339."""
    percent: Integer | None = None
    """While it runs: how much is done.  Absent until its pod tells it."""
    job: Text = ""
    """The Job, in the same namespace.  The log of its pod has the whole result, as JSON."""


def run_once_rule(kind: str) -> Rule:
    """Return the rule that the spec of such an object never changes."""
    return Rule(
        "",
        "self == oldSelf",
        f"spec cannot be changed: a {kind} is run once; create another one",
        lambda new, old: bool(new == old),
    )
