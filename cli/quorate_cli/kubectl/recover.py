"""`kubectl quorate recover`: the decisions of `quorate recover`, as ZoneRecovery objects.

Each run creates one object.  The operator runs it once and writes the result into its status; the
object stays as a record.
"""

import time
from typing import Annotated

import typer

from quorate.facts.errors import WireError
from quorate.protocol.recovery import PartitionAnswer, Recovery, RecoveryAction, RecoveryAnswer
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.zone_recovery import RecoveryPhase, ZoneRecovery, ZoneRecoveryStatus
from quorate_cli.commands import recover as embedded
from quorate_cli.commands.recover import (
    EraseOption,
    NodeOption,
    PartitionsOption,
    ToOption,
    VersionsOption,
    YesOption,
    named_versions,
    print_answer,
)
from quorate_cli.kubectl import objects
from quorate_cli.kubectl.kube_api import KubeApi
from quorate_cli.kubectl.operator_lease import find_operator
from quorate_cli.kubectl.options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    OperatorOption,
    Place,
)
from quorate_cli.kubectl.runs.follow import (
    PREFIX_MAX,
    UNREACHED_S,
    Run,
    created,
    left_going,
    looks,
)
from quorate_cli.objects.resources import ZONE
from quorate_cli.terminal.options import ZoneArgument
from quorate_cli.terminal.problem import Problem

WAIT_S = 60.0
POLL_S = 0.2

WaitOption = Annotated[
    float, typer.Option("--wait", min=0, help="Seconds to wait for the operator's answer.")
]
recover = typer.Typer(no_args_is_help=True, help=embedded.HELP)


@recover.command(help=embedded.cancel.__doc__)
def cancel(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    wait: WaitOption = WAIT_S,
    operator_namespace: OperatorOption = "",
) -> None:
    """`quorate recover cancel`, as a ZoneRecovery."""
    named = named_versions(zone, partitions, versions)
    place = Place(kubeconfig, context, namespace, operator_namespace)
    _run(zone, Recovery(RecoveryAction.CANCEL, named, dry_run=not yes), place, wait)


@recover.command(help=embedded.reset.__doc__)
def reset(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    to: ToOption = "",
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    wait: WaitOption = WAIT_S,
    operator_namespace: OperatorOption = "",
) -> None:
    """`quorate recover reset`, as a ZoneRecovery."""
    named = named_versions(zone, partitions, versions)
    place = Place(kubeconfig, context, namespace, operator_namespace)
    _run(zone, Recovery(RecoveryAction.RESET, named, to, dry_run=not yes), place, wait)


@recover.command(help=embedded.reopen.__doc__)
def reopen(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    wait: WaitOption = WAIT_S,
    operator_namespace: OperatorOption = "",
) -> None:
    """`quorate recover reopen`, as a ZoneRecovery."""
    named = named_versions(zone, partitions, versions)
    place = Place(kubeconfig, context, namespace, operator_namespace)
    _run(zone, Recovery(RecoveryAction.REOPEN, named, dry_run=not yes), place, wait)


@recover.command(help=embedded.rebuild.__doc__)
def rebuild(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    versions: VersionsOption = "",
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    wait: WaitOption = WAIT_S,
    operator_namespace: OperatorOption = "",
) -> None:
    """`quorate recover rebuild`, as a ZoneRecovery."""
    named = named_versions(zone, partitions, versions)
    place = Place(kubeconfig, context, namespace, operator_namespace)
    _run(zone, Recovery(RecoveryAction.REBUILD, named, dry_run=not yes), place, wait)


@recover.command(help=embedded.restart.__doc__)
def restart(
    zone: ZoneArgument,
    partitions: PartitionsOption,
    node: NodeOption,
    versions: VersionsOption = "",
    erase: EraseOption = False,
    yes: YesOption = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    wait: WaitOption = WAIT_S,
    operator_namespace: OperatorOption = "",
) -> None:
    """`quorate recover restart`, as a ZoneRecovery."""
    named = named_versions(zone, partitions, versions)
    place = Place(kubeconfig, context, namespace, operator_namespace)
    asked = Recovery(RecoveryAction.RESTART, named, node, erase, dry_run=not yes)
    _run(zone, asked, place, wait)


def _run(zone: str, asked: Recovery, place: Place, wait_s: float) -> None:
    """Have the operator run one ZoneRecovery; print its result."""
    manifest = _manifest(zone, asked)
    api = KubeApi(place.kubeconfig, place.context)
    namespace = place.namespace or api.namespace
    objects.fetch(api, ZONE, namespace, zone)
    operator = find_operator(api, namespace, place.operator_namespace)
    if operator.problem:
        raise Problem(f"zone {zone}: {operator.problem}; nothing was changed")
    run = created(api, ZoneRecovery, manifest, namespace, place)
    with left_going(run.goes_on):
        status = _follow(api, run, namespace, wait_s)
    if status.phase in (RecoveryPhase.REFUSED, RecoveryPhase.UNKNOWN):
        raise Problem(f"{run.about}: {'; '.join([status.message, *status.refusals])}")
    answered = [PartitionAnswer(p.partition, p.row_version, p.message) for p in status.partitions]
    answer = RecoveryAnswer(tuple(answered))
    print_answer(zone, asked, answer, "kubectl quorate", place.options)
    if not asked.dry_run:
        embedded.console.print(f"{run.about}: {status.message}")


def _manifest(zone: str, asked: Recovery) -> dict[str, object]:
    """Return the object to create; raise Problem if its schema would refuse it."""
    versions = list(asked.versions.values())
    if not any(versions):
        versions = []
        if not asked.dry_run:
            raise Problem(
                f"zone {zone}: name with --versions the rows that were shown: without --yes this"
                " command shows them, and changes nothing"
            )
    spec = {
        "zoneRef": {"name": zone},
        "action": asked.action.value,
        "partitions": list(asked.versions),
        "rowVersions": versions,
        "node": asked.node,
        "erase": asked.erase,
        "dryRun": asked.dry_run,
    }
    whole = {"apiVersion": API_VERSION, "kind": ZoneRecovery.kind_name(), "spec": spec}
    try:
        ZoneRecovery.parse({**whole, "metadata": {"name": zone}})
    except WireError as error:
        raise Problem(str(error)) from error
    return {**whole, "metadata": {"generateName": f"{zone[:PREFIX_MAX]}-"}}


def _follow(api: KubeApi, run: Run, namespace: str, wait_s: float) -> ZoneRecoveryStatus:
    """Wait until the operator has run the object; return its status.

    Raises Problem if it takes longer.
    """
    deadline = time.monotonic() + wait_s
    unreached_s = min(wait_s, UNREACHED_S)
    for found in looks(api, run, ZoneRecovery, namespace, POLL_S, unreached_s):
        status = found.status
        if status.phase is not None and status.phase.is_final:
            break
        if time.monotonic() > deadline:
            said = status.message or "the operator has not looked at it"
            raise Problem(
                f"{run.about}: not answered within {wait_s:g} s: {said}; it is run when it can be:"
                f" {run.how_to_look}"
            )
    return status
