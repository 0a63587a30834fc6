"""All commands of `kubectl quorate`."""

import io
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from quorate.facts.topology import NodeRecord
from quorate.planning.steps.preview import PresentNodes
from quorate.planning.target.distribute_partitions import DataNode
from quorate.protocol.zone_master.view.preview import zone_preview
from quorate.wire.zone import Zone
from quorate_cli.commands import aside as embedded_aside
from quorate_cli.commands import objects as embedded
from quorate_cli.commands import plan as embedded_plan
from quorate_cli.commands import top as embedded_top
from quorate_cli.commands.cli import SETTINGS
from quorate_cli.commands.events import until_nobody_reads
from quorate_cli.commands.plan import print_plan
from quorate_cli.commands.top import INTERVAL_S, IntervalOption, OnceOption, watch
from quorate_cli.copies.aside_view import print_list
from quorate_cli.kubectl import exec_client, objects, told_events
from quorate_cli.kubectl.declared_state import Found, cluster_state, needs_rows, state_json
from quorate_cli.kubectl.drain import declare_drain, follow_drain
from quorate_cli.kubectl.kube_api import KubeApi, core_path
from quorate_cli.kubectl.operator_lease import Operator, find_operator
from quorate_cli.kubectl.options import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    OperatorOption,
    Place,
    shell_words,
)
from quorate_cli.kubectl.recover import recover
from quorate_cli.kubectl.replace import find_freed, free
from quorate_cli.kubectl.report import Report
from quorate_cli.kubectl.runs.commands import RUN_COMMANDS
from quorate_cli.kubectl.top import PodMetrics
from quorate_cli.objects import resources
from quorate_cli.objects.object_view import describe_all
from quorate_cli.objects.resources import ZONE, find_kind
from quorate_cli.objects.status_view import StatusView, show
from quorate_cli.terminal.options import (
    AsideAgentOption,
    AsideZoneArgument,
    ClusterOption,
    DiffersOption,
    JsonLinesOption,
    JsonOption,
    KeyOption,
    KindArgument,
    PartitionArgument,
    WatchOption,
    WithOption,
    WithoutOption,
    ZoneArgument,
    ZoneFilter,
)
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole, Teller
from quorate_cli.terminal.version_option import VersionOption

HELP = "Inspect and operate Quorate on Kubernetes: clusters, zones and agents."
WAIT_S = 300.0
NO_CLUSTER = (
    "no StorageCluster is declared in this namespace: name another with -n, or show all with -A"
)
NO_ZONE = "no Zone is declared; declare one: kubectl apply --filename examples/zone.yaml"

console = PlainConsole()
teller = Teller()
app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

aside = typer.Typer(no_args_is_help=True, help=embedded_aside.HELP)
app.add_typer(aside, name="aside")
app.add_typer(recover, name="recover")

AllOption = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Include every namespace.")]
AgentArgument = Annotated[
    str, typer.Argument(metavar="AGENT", help="Name of the agent, as `status` shows it.")
]
DrainWaitOption = Annotated[
    float, typer.Option("--wait", min=0, help="Seconds to wait for completion; 0: do not wait.")
]


@app.callback(help=HELP)
def kubectl_quorate(_: VersionOption = False) -> None:
    """Options of `kubectl quorate` itself."""


@app.command(help=embedded.status.__doc__)
def status(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    every: AllOption = False,
    operator_namespace: OperatorOption = "",
    watch: WatchOption = False,
    as_json: JsonOption = False,
) -> None:
    """`quorate status` from the custom resources."""
    api = KubeApi(kubeconfig, context)
    place = "" if every else namespace or api.namespace
    if as_json:
        found, operators = _states(api, place, operator_namespace)
        problems = dict.fromkeys(each.problem for each in operators.values() if each.problem)
        typer.echo(state_json(found, {"operator": "; ".join(problems)} if problems else {}))
        return
    view = StatusView(NO_CLUSTER, NO_ZONE)
    show(lambda: _look(view, api, place, operator_namespace), watch, console)


@app.command(help=embedded.describe.__doc__)
def describe(
    kind: KindArgument,
    name: Annotated[str | None, typer.Argument()] = None,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    every: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """`quorate describe` from the custom resources."""
    found = find_kind(kind)
    if every and name is not None:
        raise Problem(f"-A cannot be combined with the name {name}: name its namespace with -n")
    api = KubeApi(kubeconfig, context)
    place = "" if every else namespace or api.namespace
    if name is not None:
        wholes = [objects.fetch(api, found, place, name)]
    else:
        wholes = objects.fetch_all(api, found, place)
    if not wholes and not as_json:
        where = f"in namespace {place}" if place else "in any namespace"
        console.print(f"there are no {found.plural} {where}")
    describe_all(found, wholes, name, as_json, console)


@app.command()
def events(
    zone: ZoneFilter = None,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    every: AllOption = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events until Ctrl-C.")
    ] = False,
    cluster: ClusterOption = "",
    as_json: JsonLinesOption = False,
) -> None:
    """Show recent events (joins, losses, migrations), then the state of each zone."""
    if every and (zone or cluster):
        raise Problem(
            "-A cannot be combined with a zone or --cluster: name their namespace with -n"
        )
    api = KubeApi(kubeconfig, context)
    place = "" if every else namespace or api.namespace
    of = None
    if zone is not None:
        of = resources.zone(objects.fetch(api, ZONE, place, zone))
    elif cluster:
        objects.the_cluster(api, place, cluster)
    with until_nobody_reads():
        for each in told_events.read(api, place, of, follow, cluster):
            told_events.show(each, as_json, every)


@app.command(help=embedded_top.top.__doc__)
def top(
    once: OnceOption = False,
    interval: IntervalOption = INTERVAL_S,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    cluster: ClusterOption = "",
    operator_namespace: OperatorOption = "",
    as_json: JsonOption = False,
) -> None:
    """`quorate top`, from the metrics of pods."""
    api = KubeApi(kubeconfig, context)
    of = objects.the_cluster(api, namespace or api.namespace, cluster)
    metrics = PodMetrics(api, of, operator_namespace)
    watch(metrics.read, interval, console, once=once, as_json=as_json)


@app.command(help=embedded_plan.plan.__doc__)
def plan(
    zone: ZoneArgument,
    without: WithoutOption = None,
    more: WithOption = 0,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    as_json: JsonOption = False,
) -> None:
    """`quorate plan` from the custom resources."""
    api = KubeApi(kubeconfig, context)
    place = namespace or api.namespace
    declared = resources.zone(objects.fetch(api, ZONE, place, zone))
    rows = objects.stored_rows(api, place, declared.status.zone_id or declared.metadata.uid)
    if rows.record is None:
        raise Problem(f"Zone {zone} is not led yet: try again soon; see `kubectl quorate status`")
    nodes = objects.registrations(api, place, declared.spec.cluster_ref.name)
    data_nodes = rows.record.data_nodes.nodes if rows.record.data_nodes is not None else ()
    away = {name for name, each in nodes.items() if each.left_since_ms is not None}
    absent = away & {*data_nodes}  # they are waited for
    there = [
        DataNode(name, each.weight, each.failure_domain, name not in away - absent)
        for name, each in sorted(nodes.items())
        if not each.draining
    ]
    drained = [name for name, each in nodes.items() if each.draining]
    present = PresentNodes(there, absent, drained)
    record = msgspec.structs.replace(rows.record, replicas=declared.spec.replicas)
    by_partition = {row.partition: row for row in rows.rows}
    try:
        found = zone_preview(record, by_partition, {}, present, nodes, without or (), more)
    except ValueError as error:
        raise Problem(str(error)) from error
    print_plan(zone, found, as_json, sizes=False)


for command in RUN_COMMANDS:
    app.command()(command)


@app.command()
def drain(
    agent: AgentArgument,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    cluster: ClusterOption = "",
    wait: DrainWaitOption = WAIT_S,
    operator_namespace: OperatorOption = "",
) -> None:
    """Move every copy off an agent, and keep it empty until `undrain`."""
    place = Place(kubeconfig, context, namespace, operator_namespace)
    _drain(place, cluster, agent, True, wait)
    if wait:
        undo = _undrain_command(agent, place, cluster)
        teller.print(f"agent {agent} has no copies; undo: {undo}", soft_wrap=True)


@app.command()
def undrain(
    agent: AgentArgument,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    cluster: ClusterOption = "",
    wait: DrainWaitOption = WAIT_S,
    operator_namespace: OperatorOption = "",
) -> None:
    """Undo `drain`: the agent may hold copies again."""
    _drain(Place(kubeconfig, context, namespace, operator_namespace), cluster, agent, False, wait)
    if wait:
        teller.print(f"agent {agent} may hold copies again")


@app.command()
def replace(
    agent: AgentArgument,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    cluster: ClusterOption = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    operator_namespace: OperatorOption = "",
) -> None:
    """Replace a managed agent that is lost for good by a new pod with an empty volume.

    Deletes the agent's pod and its claim, and with them its data.  Refused while the agent is
    online, and while an acknowledged write could be lost with its data.
    """
    api = KubeApi(kubeconfig, context)
    place = Place(kubeconfig, context, namespace, operator_namespace)
    of = objects.the_cluster(api, namespace or api.namespace, cluster)
    operator = find_operator(api, namespace or api.namespace, operator_namespace)
    if operator.problem:
        raise Problem(f"agent {agent}: {operator.problem}; nothing was changed")
    if operator.unknown:
        raise Problem(f"agent {agent}: {operator.unknown}; nothing was changed")
    freed = find_freed(api, of, agent, place)
    for each in freed.sentences():
        teller.print(each, soft_wrap=True)
    if not yes:
        if not sys.stdin.isatty():
            raise Problem(f"agent {agent}: nothing was changed: confirm with --yes")
        if not typer.confirm(f"Give up the data of agent {agent}?"):
            raise Problem("nothing was changed")
    free(api, of, freed)
    teller.print(
        f"deleted; a new pod {of.metadata.name}-{agent}-0 with an empty volume is filled by the"
        f" other agents: kubectl quorate status --watch{place.words}",
        soft_wrap=True,
    )


@app.command(context_settings=SETTINGS)
def cli(
    zone: ZoneArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND …]", help="One command; without it, commands from standard input."
        ),
    ] = None,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
) -> NoReturn:
    """Run Redis commands in a zone, with the built-in client in an agent's pod (`kubectl exec`).

    kubectl quorate cli library set greeting hello

    The exit code is 1 if a reply is an error.  Options of `kubectl quorate` come before ZONE.
    """
    api = KubeApi(kubeconfig, context)
    place = namespace or api.namespace
    of = resources.zone(objects.fetch(api, ZONE, place, zone))
    pod, address, _ = _pod_of(api, place, of)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    exec_client.run(exec_client.exec_command(api, place, pod, address, command or (), is_terminal))


@aside.command("list", help=embedded_aside.list_aside.__doc__)
def list_aside(
    zone: AsideZoneArgument = None,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    as_json: JsonOption = False,
) -> None:
    """`quorate aside list`, in an agent's pod."""
    api = KubeApi(kubeconfig, context)
    place = namespace or api.namespace
    if zone:
        found = [resources.zone(objects.fetch(api, ZONE, place, zone))]
    else:
        known = objects.zones(api, place)
        # The operator knows of those that are online what they have set aside.
        found = [each for each in known if each.status.set_aside]
        if not found:
            print_list((), _not_online(api, place, known), as_json)
            return
    of = found[0]
    names = [each.metadata.name for each in found if each.spec.cluster_ref == of.spec.cluster_ref]
    others = [each.metadata.name for each in found if each.metadata.name not in names]
    if others:
        typer.echo(f"in other clusters; name one of these for it: {', '.join(others)}", err=True)
    _run_aside(api, place, of, ["list", *names, *(["--json"] if as_json else [])])


@aside.command("show", help=embedded_aside.show.__doc__)
def show_aside(
    zone: ZoneArgument,
    partition: PartitionArgument,
    agent: AsideAgentOption = None,
    key: KeyOption = None,
    differs: DiffersOption = False,
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    as_json: JsonLinesOption = False,
) -> None:
    """`quorate aside show`, in an agent's pod."""
    api = KubeApi(kubeconfig, context)
    place = namespace or api.namespace
    of = resources.zone(objects.fetch(api, ZONE, place, zone))
    words = ["show", zone, str(partition)]
    words += [f"--agent={agent}"] if agent is not None else []
    words += [f"--key={key}"] if key is not None else []
    words += ["--differs"] if differs else []
    words += ["--json"] if as_json else []
    _run_aside(api, place, of, words)


def _not_online(api: KubeApi, place: str, zones: Sequence[Zone]) -> dict[str, str]:
    """Return the agents of the zones' clusters that are away, and that they are."""
    return {
        name: "it is not online"
        for cluster in sorted({each.spec.cluster_ref.name for each in zones})
        for name, node in objects.registrations(api, place, cluster).items()
        if node.left_since_ms is not None
    }


def _run_aside(api: KubeApi, place: str, zone: Zone, words: list[str]) -> None:
    pod, _, nodes = _pod_of(api, place, zone)
    exec_client.run(exec_client.aside_command(api, place, pod, zone, nodes, words))


def _pod_of(api: KubeApi, place: str, zone: Zone) -> tuple[str, str, dict[str, NodeRecord]]:
    """Return an agent's pod, the host:port of its clients, and the registered agents."""
    name = zone.spec.cluster_ref.name
    selector = f"{objects.LABEL_CLUSTER}={name},{objects.LABEL_AGENT}"
    pods = api.collection(core_path("pods", place), labelSelector=selector)
    nodes = objects.registrations(api, place, name)
    return *exec_client.choose_pod(zone, pods, nodes), nodes


@app.command()
def report(
    kubeconfig: KubeconfigOption = "",
    context: ContextOption = "",
    namespace: NamespaceOption = "",
    operator_namespace: OperatorOption = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File of the archive (.tar.gz).")
    ] = None,
) -> None:
    """Write a support bundle of objects, events, logs and versions; no Secrets, keys or values."""
    api = KubeApi(kubeconfig, context)
    place = namespace or api.namespace

    def shown() -> str:
        text = io.StringIO()
        look = _look(StatusView(NO_CLUSTER, NO_ZONE), api, place, operator_namespace)
        Console(file=text, width=160).print(look)
        return text.getvalue()

    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    file = output or Path(f"quorate-report-{place}-{at}.tar.gz")
    if not file.absolute().parent.is_dir():
        raise Problem(f"--output {file}: folder {file.absolute().parent} does not exist: create it")
    made = Report(api, place, operator_namespace)
    made.gather(shown)
    made.write(file)
    teller.print(f"{file}: {len(made.files)} files", soft_wrap=True)
    if made.missing:
        count = len(made.missing)
        teller.print(f"{count} items could not be read: missing.txt in the archive lists them")


def _undrain_command(agent: str, place: Place, cluster: str) -> str:
    more = shell_words(["--cluster", cluster]) if cluster else ""
    return f"kubectl quorate undrain {agent}{place.words}{more}"


def _drain(place: Place, cluster: str, agent: str, draining: bool, wait: float) -> None:
    api = KubeApi(place.kubeconfig, place.context)
    namespace = place.namespace or api.namespace
    of = objects.the_cluster(api, namespace, cluster)
    # Asked before the declaration: once that is made, one lost answer is to end nothing.
    operator = find_operator(api, namespace, place.operator_namespace) if wait else None
    made = declare_drain(api, of, agent, draining)
    unchanged = made.spec.drain_agents == of.spec.drain_agents
    names = ", ".join(made.spec.drain_agents) or "none"
    so = "unchanged" if unchanged else "changed"
    teller.print(
        f"storagecluster/{made.metadata.name} {so}: spec.drainAgents: {names}", soft_wrap=True
    )
    if operator is None:
        return
    if operator.problem:
        raise Problem(f"agent {agent}: declared, but not carried out: {operator.problem}")
    undo = _undrain_command(agent, place, cluster)
    follow_drain(
        api,
        made,
        agent,
        draining,
        wait,
        undo,
        lambda said: teller.print(Text(said), soft_wrap=True),
    )


def _look(
    view: StatusView, api: KubeApi, namespace: str, operator_namespace: str
) -> RenderableType:
    found, operators = _states(api, namespace, operator_namespace)
    shown = [
        each.state
        if namespace
        else msgspec.structs.replace(each.state, cluster=f"{each.namespace}/{each.state.cluster}")
        for each in found
    ]
    unknown = {each.unknown for each in operators.values() if each.unknown}
    return Group(view.render(shown), *(Text(each, "dim") for each in sorted(unknown)))


def _states(
    api: KubeApi, namespace: str, operator_namespace: str
) -> tuple[list[Found], Mapping[str, Operator]]:
    """Return the clusters of a namespace, or of all, and whether operators lead, by namespace."""
    clusters, zones = objects.clusters(api, namespace), objects.zones(api, namespace)
    operators: dict[str, Operator] = {}
    scheduled: dict[str, set[str] | None] = {}
    found = []
    for cluster in clusters:
        place, name = cluster.metadata.namespace, cluster.metadata.name
        if place not in operators:
            operators[place] = find_operator(api, place, operator_namespace)
            scheduled[place] = objects.zones_with_backups(api, place)
        its = [
            zone
            for zone in zones
            if zone.metadata.namespace == place and zone.spec.cluster_ref.name == name
        ]
        rows = {
            zone.status.zone_id: objects.stored_rows(api, place, zone.status.zone_id)
            for zone in its
            if zone.status.zone_id and needs_rows(zone.status)
        }
        nodes = objects.registrations(api, place, name)
        problem = operators[place].problem
        state = cluster_state(cluster, its, nodes, rows, problem, scheduled[place])
        found.append(Found(place, state))
    return found, operators
