"""The fields that all kinds share of which each object is one Job: how it is run, how far it is."""

import enum
import re
from typing import Annotated, ClassVar

from pydantic import Field

from quorate.facts.read_limit import MAX_MIB_PER_SECOND_PER_AGENT, MIB_PER_SECOND_MAX
from quorate.wire.jobs.executors import CORES_MAX, EXECUTORS_MAX, MEMORY_MIN
from quorate.wire.managed_agents import QUANTITY, FreeForm, Labels, PodAdditions
from quorate.wire.schema.resource import Integer, Part, Rule, Text
from quorate.wire.zone import ObjectName, memory_bytes

DEADLINE_S = 6 * 3600
DEADLINE_MAX_S = 30 * 24 * 3600
TTL_S = 24 * 3600
TTL_MIN_S = 600
"""The operator has so long to read the result from the pod."""
TTL_MAX_S = 365 * 24 * 3600
_LED_ENV = (
    "^(TZ|(HTTP|HTTPS|NO|ALL)_PROXY|(http|https|no|all)_proxy|SSL_CERT_(FILE|DIR)"
    "|AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|REGION|DEFAULT_REGION|CA_BUNDLE"
    "|ENDPOINT_URL|ENDPOINT_URL_S3|EC2_METADATA_DISABLED))$"
)
"""Names of the variables that a user may give to a pod with rights.  Others can choose code for
Java, Python, Spark, the shell and the loader, or whom the pod gives its token."""
_MIB_PER_CORE = 512
"""Memory that an executor needs for each partition that it reads at the same time."""


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


class DividedRun(ReadingRun):
    """A zone, and the pods that read copies of it: one, or one and executors."""

    executors: Annotated[Integer, Field(ge=0, le=EXECUTORS_MAX)] = 0
    """More pods among which Spark divides the partitions; the pod of the Job then only leads them,
    as the ServiceAccount quorate-driver, which an administrator makes in this namespace.  0: the
    pod of the Job does all, and has no rights; the other fields about executors are ignored."""
    executor_cores: Annotated[Integer, Field(ge=1, le=CORES_MAX)] = 1
    """Partitions, or groups of them, that each executor reads at the same time."""
    executor_cpu: Annotated[Text, Field(pattern="^[1-9][0-9]{0,6}m?$")] | None = None
    """Processors that each executor requests, such as 500m.  Absent: as many as executorCores."""
    executor_memory: Annotated[Text, Field(pattern=QUANTITY, max_length=20)] = "2Gi"
    """Memory that each executor requests, which is also its limit."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "executorMemory",
            "quantity(self.executorMemory).compareTo(quantity('1Gi')) >= 0",
            "write at least 1Gi",
            lambda new, _: memory_bytes(new.executor_memory) >= MEMORY_MIN,
        ),
        Rule(
            "executorMemory",
            "self.executors == 0 || !quantity(self.executorMemory).isInteger() ||"
            " quantity(self.executorMemory).asInteger() >="
            f" {_MIB_PER_CORE << 20} * self.executorCores",
            f"write at least {_MIB_PER_CORE}Mi for each of executorCores",
            lambda new, _: (
                new.executors == 0
                or memory_bytes(new.executor_memory) >= (_MIB_PER_CORE << 20) * new.executor_cores
            ),
        ),
        Rule(
            "podTemplate",
            "self.executors == 0 || !has(self.podTemplate) || !has(self.podTemplate.env) ||"
            f" self.podTemplate.env.all(e, has(e.name) && e.name.matches('{_LED_ENV}'))",
            "write executors: 0, or only such env as cannot choose what the programs of the pod"
            " run, for it has rights: TZ, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, ALL_PROXY (small"
            " letters too), SSL_CERT_FILE, SSL_CERT_DIR, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,"
            " AWS_SESSION_TOKEN, AWS_REGION, AWS_DEFAULT_REGION, AWS_CA_BUNDLE, AWS_ENDPOINT_URL,"
            " AWS_ENDPOINT_URL_S3, AWS_EC2_METADATA_DISABLED",
            lambda new, _: new.executors == 0 or new.has_only_led_env,
            shows_value=False,
        ),
    )

    @property
    def has_only_led_env(self) -> bool:
        """Whether no variable of the user's can choose what the programs of the pod run."""
        added = self.pod_template.env if self.pod_template is not None else []
        return all(re.fullmatch(_LED_ENV, str(each.get("name", ""))) for each in added)


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
    job_end: Text = ""
    """How the Job has ended, as JSON, while that waits for the zone: the Job may be deleted."""


def run_once_rule(kind: str) -> Rule:
    """Return the rule that the spec of such an object never changes."""
    return Rule(
        "",
        "self == oldSelf",
        f"spec cannot be changed: a {kind} is run once; create another one",
        lambda new, old: bool(new == old),
    )
