"""Repairs a zone's keys that differ: first a plan, which changes nothing, then its execution.

The plan is made of what a validation of level rows (or digest) has confirmed.  Nothing else is ever
written: a key that was not confirmed, or that was overwritten since, is not touched.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from quorate_spark.progress import Progress
from quorate_spark.reading.agent_link import Cluster, parse_addresses
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.repairing.decide import Action, Strategy
from quorate_spark.repairing.execute import Done, KeyDone, execute
from quorate_spark.repairing.plan import (
    Planned,
    PlannedKey,
    PlanRefused,
    plan_keys,
    read_plan,
    write_plan,
)
from quorate_spark.settings import Settings
from quorate_spark.validate import run_validation
from quorate_spark.verdict import Level, Outcome, Verdict

KEYS_MAX = 10_000
"""Keys in one plan: each is read again on every copy to be confirmed."""
WAIT_S = 60.0
"""How long one key may take to be repaired; a primary may have to be handed over."""


class Zone(msgspec.Struct, frozen=True):
    """The zone to be repaired, as it is declared; `uid` is empty if not known."""

    name: str
    uid: str
    partitions: int
    replicas: int


class DryRun(msgspec.Struct, frozen=True):
    """A verdict and the plan that was made of it."""

    verdict: Verdict
    keys: tuple[PlannedKey, ...]

    @property
    def exit_code(self) -> int:
        """The exit code: that of the validation."""
        return self.verdict.exit_code


class Executed(msgspec.Struct, frozen=True):
    """The outcome of each key of a plan of a plan."""

    zone: str
    keys: tuple[KeyDone, ...]

    def count(self, done: Done) -> int:
        """Return how many keys ended so."""
        return sum(key.done is done for key in self.keys)

    @property
    def exit_code(self) -> int:
        """The exit code: 0 if every key is repaired, else 1."""
        return 0 if self.count(Done.REPAIRED) == len(self.keys) else 1


def make_plan(
    zone: Zone,
    agents: Sequence[str],
    level: Level,
    strategy: Strategy,
    path: Path,
    *,
    work_dir: Path,
    cluster: Cluster,
    settings: Settings,
    keys_max: int,
) -> DryRun:
    """Validate the zone and write the plan to `path`; without a confirmed key there is no file.

    `keys_max`: how many keys that differ are confirmed at most.  Raises PlanRefused.
    """
    if path.exists():
        raise PlanRefused(f"{path} is there already: name another file with --plan")
    dry_run = find_keys(
        zone,
        agents,
        level,
        strategy,
        work_dir=work_dir,
        cluster=cluster,
        settings=settings,
        keys_max=keys_max,
    )
    if dry_run.keys:
        write_plan(path, dry_run.keys)
    return dry_run


def find_keys(
    zone: Zone,
    agents: Sequence[str],
    level: Level,
    strategy: Strategy,
    *,
    work_dir: Path,
    cluster: Cluster,
    settings: Settings,
    keys_max: int,
    progress: Progress | None = None,
) -> DryRun:
    """Validate the zone and plan its keys that differ; no file is written.

    Raises PlanRefused if agents have another zone of this name.
    """
    verdict = run_validation(
        zone.name,
        agents,
        level,
        work_dir=work_dir,
        cluster=cluster,
        partitions=zone.partitions,
        replicas=zone.replicas,
        settings=replace(settings, rechecks_max=keys_max, differences_max=keys_max),
        progress=progress,
    )
    if verdict.zone_uid and zone.uid and verdict.zone_uid != zone.uid:
        raise PlanRefused(
            f"zone {zone.name} was deleted and created again since this was asked for: ask again"
        )
    planned_at = datetime.now(UTC).isoformat(timespec="seconds")
    common = Planned(zone.name, zone.uid, cluster.name, strategy, planned_at)
    return DryRun(verdict, tuple(plan_keys(verdict.key_differences, common)))


def execute_plan(
    path: Path,
    zone: Zone,
    agents: Sequence[str],
    *,
    cluster: Cluster,
    settings: Settings,
    wait_s: float,
    told: Callable[[str], None],
) -> Executed:
    """Execute the plan in the file.  Raises PlanRefused if it is not of this zone."""
    keys = read_plan(path)
    check_plan(keys, str(path), zone, cluster)
    done = execute_keys(
        keys, zone, agents, cluster=cluster, settings=settings, wait_s=wait_s, told=told
    )
    return Executed(zone.name, tuple(done))


def check_plan(keys: Sequence[PlannedKey], path: str, zone: Zone, cluster: Cluster) -> None:
    """Raise PlanRefused if a plan, which is at `path`, is not of this zone."""
    for key in keys:
        if (key.zone, key.cluster) != (zone.name, cluster.name):
            raise PlanRefused(
                f"{path} is a plan for zone {key.zone} of cluster {key.cluster}, not for zone"
                f" {zone.name} of cluster {cluster.name}"
            )
        if key.zone_uid and zone.uid and key.zone_uid != zone.uid:
            raise PlanRefused(
                f"{path} was made for an earlier zone {zone.name}: it was deleted and created"
                " again since; make another plan"
            )


def execute_keys(
    keys: Sequence[PlannedKey],
    zone: Zone,
    agents: Sequence[str],
    *,
    cluster: Cluster,
    settings: Settings,
    wait_s: float,
    told: Callable[[str], None],
) -> Iterator[KeyDone]:
    """Execute a plan that was checked; yield what became of each key."""
    copies = ZoneCopies(
        zone.name,
        parse_addresses(",".join(agents)),
        cluster,
        zone.partitions,
        zone.replicas,
        zone.uid,
    )
    return execute(keys, copies, settings, wait_s, told)


def why_incomplete(dry_run: DryRun) -> list[str]:
    """Return why another plan may be needed after this one, in sentences."""
    verdict = dry_run.verdict
    left = verdict.differing_keys - len(dry_run.keys)
    sentences = []
    if left > 0:
        sentences.append(
            f"{left} more keys differ that were not confirmed (too many, or overwritten): make"
            " another plan after this one"
        )
    if verdict.differing_partitions:
        sentences.append(
            f"counters differ in {verdict.differing_partitions} partitions: that is of whole copies"
            " and not repaired by keys"
        )
    if verdict.outcome is not Outcome.AGREE:
        sentences += verdict.reasons
    return sentences


def irreparable(keys: Sequence[PlannedKey]) -> int:
    """Return how many keys the strategy cannot decide."""
    return sum(key.action is Action.IRREPARABLE for key in keys)
