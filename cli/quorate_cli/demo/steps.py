"""The eight steps of the demo, each of which measures something and checks it."""

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from quorate.protocol.status import NodeStatus, ZoneStatus
from quorate_cli.copies.agent_question import asked_agent
from quorate_cli.copies.damage import damage_copy
from quorate_cli.copies.validation import run_validation, validation_command
from quorate_cli.demo.acknowledged_writes import (
    Failure,
    Writer,
    percentile,
    primary_ports,
)
from quorate_cli.demo.library_files import Library, library_files
from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.dev.process_states import process_states
from quorate_cli.objects import resources
from quorate_cli.processes.agent_metrics import longest_parked, parked_by_duration
from quorate_cli.processes.cluster_folder import ClusterFolder
from quorate_cli.processes.process import python
from quorate_cli.terminal.figures import size
from quorate_cli.terminal.problem import Problem

EXAMPLE = Path(__file__).parents[3] / "examples" / "zone.yaml"
SETTLE_S = 60.0
"""Seconds until the cluster must be as declared again after a step; usually it takes a few."""
POLL_S = 0.1
DAMAGE = b"this copy was damaged on purpose"


class KeyDifference(msgspec.Struct):
    """The part of a differing key in a validation's report that the demo reads."""

    key: str


class Report(msgspec.Struct):
    """The part of a validation's report that the demo reads."""

    outcome: str
    partitions: int = 0
    copies: int = 0
    settled_keys: int = 0
    unsettled_keys: int = 0
    differing_keys: int = 0
    key_differences: tuple[KeyDifference, ...] = ()
    reasons: tuple[str, ...] = ()


class Demo:
    """One run of the demo, in a folder that the caller cleans up."""

    def __init__(self, folder: Path, library_bytes_max: int, console: Console) -> None:
        self.console = console
        self.folder = folder
        self.cluster = DevCluster(ClusterFolder(folder), lambda text: None)
        self.library = Library(library_files(library_bytes_max))
        self.zone_name = ""
        self.endpoints: list[str] = []
        self.writer = Writer((), 1)

    @property
    def steps(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """The titles and functions of the steps, in order."""
        return (
            ("start one operator and three agents on loopback", self.start_cluster),
            ("declare a zone: quorate apply -f examples/zone.yaml", self.declare_zone),
            ("store this Python's standard library and read it back", self.load_library),
            ("kill -9 an agent while a client writes", self.kill_primary),
            ("add a fourth agent; data moves onto it", self.add_agent),
            ("restart the agents one by one", self.restart_agents),
            ("stop everything and start it again", self.restart_cluster),
            ("compare all copies with Spark, damage one, compare again", self.validate),
        )

    def run(self) -> None:
        """Run all steps; raise Problem at the first that fails."""
        begin = time.monotonic()
        try:
            for number, (title, step) in enumerate(self.steps, 1):
                self.console.print(f"\n{number}/{len(self.steps)}  {title}", style="bold")
                since = time.monotonic()
                step()
                self._say(Text.assemble(("passed", "green"), f", {time.monotonic() - since:.1f} s"))
        finally:
            self.writer.stop()
        seconds = time.monotonic() - begin
        passed = (f"all {len(self.steps)} steps passed", "bold green")
        self.console.print(Text.assemble("\n", passed, f" in {seconds:.0f} s"))

    # --- 1, 2: a cluster and a zone --------------------------------------------------------------

    def start_cluster(self) -> None:
        """Start real processes on loopback."""
        self.cluster.up(agents=3, debug_commands=True)
        for state in process_states(self.cluster.folder):
            listens = ", ".join(f"{what} {where}" for what, where in state.listens.items())
            self._say(f"{state.name:9} process {state.pid}, {listens}")

    def declare_zone(self) -> None:
        """Declare a zone as a user would, by the command."""
        if not EXAMPLE.exists():
            raise Problem(f"{EXAMPLE} does not exist: run the demo from a checkout of the project")
        command = ("apply", "-f", str(EXAMPLE), "--folder", str(self.folder), "--wait", "30")
        applied = subprocess.run(python("quorate_cli", *command), capture_output=True, text=True)
        if applied.returncode:
            raise Problem(f"quorate apply exited with {applied.returncode}: {applied.stderr}")
        self._say(applied.stdout.strip())
        (found,) = resources.fetch_all(self.cluster.api(), resources.ZONE)
        self.zone_name = resources.name_of(found)
        self.endpoints = resources.zone(found).status.endpoints
        host, _, port = self.endpoints[0].rpartition(":")
        self._say(Text.assemble("try it:  ", (f"redis-cli -c -h {host} -p {port}", "bold")))
        self._say(f"logs: {self.folder}/operator.log and {self.folder}/agents/*/agent.log")

    # --- 3: data ---------------------------------------------------------------------------------

    def load_library(self) -> None:
        """Store every file, then read every file."""
        self._pass_over_library("stored", self.library.store)
        if self.library.repeated:
            self._say(f"{self.library.repeated} commands were sent again")
        self._check_library()

    def _check_library(self) -> None:
        self._pass_over_library("read back", self.library.check)
        self._say("the SHA-256 of every file is the same")

    def _pass_over_library(
        self, what: str, work: Callable[[Sequence[str], Callable[[int], None]], None]
    ) -> None:
        columns = (TextColumn("   {task.description}"), BarColumn(), DownloadColumn())
        since = time.monotonic()
        with Progress(
            *columns,
            TransferSpeedColumn(),
            console=self.console,
            transient=True,
            disable=self._plain,
        ) as bar:
            task = bar.add_task(what, total=self.library.byte_count)
            work(self.endpoints, lambda count: bar.advance(task, count))
        seconds = time.monotonic() - since
        count = self.library.byte_count
        self._say(
            f"{len(self.library.files)} files, {size(count)} {what} in {seconds:.1f} s"
            f" ({size(int(count / seconds))}/s)"
        )

    # --- 4: a loss -------------------------------------------------------------------------------

    def kill_primary(self) -> None:
        """SIGKILL the agent that serves most partitions; check acknowledged writes."""
        self.writer = writer = Writer(self.endpoints, self._zone().partitions)
        writer.start()
        writer.wait_for_writes(0.0, 5, 30)
        victim = max(self._nodes(), key=lambda node: (node.primaries, node.name))
        served = self._keys_served_by(victim.name)
        since = time.monotonic()
        self.cluster.kill(victim.name)
        writer.wait_for_writes(since, 3, SETTLE_S)
        until = time.monotonic()
        gaps = [
            1000 * history.longest_gap(since, until)
            for history in writer.histories
            if history.name in served
        ]
        self._say(
            f"{victim.name} was the primary of {victim.primaries} of {self._zone().partitions}"
            " partitions; pause of writes to a key of these:"
            f" p50 {percentile(gaps, 0.5):.0f} ms, p99 {percentile(gaps, 0.99):.0f} ms,"
            f" longest {max(gaps):.0f} ms"
        )
        self._check_writes(since)
        copied = self._zone().full_copies
        self.cluster.start(victim.name)
        self._wait(self._is_settled, f"{victim.name} to catch up")
        self._say(
            f"{victim.name} is back and has every update;"
            f" full copies: {self._zone().full_copies - copied}"
        )

    def _keys_served_by(self, node: str) -> set[str]:
        """Return the writer's keys whose primary, as a client sees it, is `node`."""
        keys = [history.name for history in self.writer.histories]
        served = primary_ports(self.endpoints, keys)
        port = self._zone().ports[node]
        return {key for key in keys if served[key] == port}

    # --- 5: growth -------------------------------------------------------------------------------

    def add_agent(self) -> None:
        """Add a fourth agent, which takes its share while the writer goes on."""
        moved = self._zone().bytes_moved
        parked = self._parked()
        since = time.monotonic()
        name = self.cluster.add()
        nodes = self._nodes()
        wanted = sum(node.owners for node in nodes) // len(nodes)
        with self._count_bar(f"copies on {name}", wanted) as update:

            def arrived() -> bool:
                copies = self._node(name).owners
                update(copies)
                return copies >= wanted and self._is_settled()

            self._wait(arrived, f"{name} to hold {wanted} copies")
        until = time.monotonic()
        moved = self._zone().bytes_moved - moved
        self._say(
            f"{self._node(name).owners} copies moved onto {name}: {size(moved)} in"
            f" {until - since:.1f} s ({size(int(moved / (until - since)))}/s)"
        )
        self._say(words_of_parked(*longest_parked(parked, self._parked())))
        self._say_longest_wait(since, until)
        refuse_failures(self._check_writes(since), f"{name} joined")

    def _parked(self) -> dict[float, int]:
        """Return how many commands of all agents waited for a primary, by how long."""
        total: Counter[float] = Counter()
        for agent in self.cluster.folder.read().agents:
            address = self.cluster.folder.agent_address(agent.name)
            if address is not None:
                total.update(parked_by_duration(address.host, address.admin_port))
        return dict(total)

    # --- 6, 7: restarts --------------------------------------------------------------------------

    def restart_agents(self) -> None:
        """Restart each agent: primaries are handed over, missed updates come from the log."""
        since = time.monotonic()
        copied = self._zone().full_copies
        names = [node.name for node in self._nodes()]
        with self._count_bar("agents restarted", len(names)) as update:
            for count, name in enumerate(names, 1):
                self.cluster.stop(name)
                self.cluster.start(name)
                self._wait(self._is_settled, f"{name} to catch up")
                update(count)
        until = time.monotonic()
        copied = self._zone().full_copies - copied
        self._say(f"{len(names)} restarts in {until - since:.1f} s; full copies: {copied}")
        self._say_longest_wait(since, until)
        refuse_failures(self._check_writes(since), "agents were restarted one by one")
        if copied:
            raise Problem(f"full copies: {copied}, although the logs had every missing update")

    def restart_cluster(self) -> None:
        """Stop everything, start it again, and check that everything is there."""
        self.writer.stop()
        since = time.monotonic()
        self.cluster.down()
        stopped = time.monotonic()
        self.cluster.up()
        self._wait(self._is_settled, "every partition to be served again")
        self._say(
            f"stopped in {stopped - since:.1f} s, serving again"
            f" {time.monotonic() - stopped:.1f} s later"
        )
        self.endpoints = self._fresh_endpoints()
        self.writer.move(self.endpoints)
        self._say(f"{self.writer.check()} acknowledged writes, none lost")
        self._check_library()

    def _fresh_endpoints(self) -> list[str]:
        found = resources.fetch(self.cluster.api(), resources.ZONE, self.zone_name)
        return resources.zone(found).status.endpoints

    def _replicas(self) -> int:
        found = resources.fetch(self.cluster.api(), resources.ZONE, self.zone_name)
        return resources.zone(found).spec.replicas

    # --- 8: proof --------------------------------------------------------------------------------

    def validate(self) -> None:
        """Have Spark compare every copy while the writer goes on; damage one and have it found."""
        self.writer.start()
        code, report = self._compare()
        if code != 0:
            raise Problem(f"copies do not agree ({report.outcome}): {'; '.join(report.reasons)}")
        self._say(
            f"{report.copies} copies of {report.partitions} partitions agree in"
            f" {report.settled_keys} keys; {report.unsettled_keys} more were being written"
        )
        key = self.library.files[len(self.library.files) // 2].key
        node = self._damage(key)
        self._say(f"damaged the copy of {key} on {node}")
        code, report = self._compare()
        found = [difference.key for difference in report.key_differences]
        if code != 1 or found != [key]:
            raise Problem(
                f"{key} was damaged, but the validation exited with {code} and reported"
                f" {', '.join(found) or 'nothing'}"
            )
        self._say(f"the validation reported {found[0]} and nothing else")

    def _compare(self) -> tuple[int, Report]:
        file = self.folder / "validation.json"
        log = self.folder / "spark.log"
        zone = self._zone()
        file.unlink(missing_ok=True)
        entry = self.cluster.folder.read()
        agents = [f"127.0.0.1:{agent.peer_port}" for agent in entry.agents]
        command = validation_command(
            zone.name,
            entry.cluster,
            self.cluster.folder.secret_file(entry.cluster),
            agents,
            "rows",
            self.folder / "spark",
            file,
            zone.partitions,
            self._replicas(),
        )
        with self.console.status("   Spark reads every copy"):
            code = run_validation(command, log, self.folder / "spark.pid")
        try:
            return code, msgspec.json.decode(file.read_bytes(), type=Report)
        except (FileNotFoundError, msgspec.MsgspecError) as error:
            raise Problem(
                f"the validation exited with {code} and wrote no report: see {log}"
            ) from error

    def _damage(self, key: str) -> str:
        """Overwrite `key` in a backup's copy; return the backup's name."""
        entry = self.cluster.folder.read()
        port = primary_ports(self.endpoints, [key])[key]
        ports = self._zone().ports
        for node in sorted(ports):
            address = self.cluster.folder.agent_address(node)
            if ports[node] == port or address is None:
                continue
            with suppress(Problem):  # an agent without a copy of this partition says so
                damage_copy(
                    asked_agent(self.cluster.folder, entry.cluster, address),
                    self.zone_name,
                    key.encode(),
                    DAMAGE,
                )
                return node
        raise Problem(f"only the primary has a copy of {key}")

    # --- small questions and sentences -----------------------------------------------------------

    def _say(self, sentence: str | Text) -> None:
        self.console.print(Text.assemble("   ", sentence), soft_wrap=True)

    def _check_writes(self, since: float) -> list[Failure]:
        """Return the failed commands; raise Problem unless acknowledged writes are found."""
        failures: list[Failure] = self.writer.failures_since(since)
        unknown = sum("UNKNOWN" in failure.text for failure in failures)
        self._say(f"failed commands: {len(failures)}, {unknown} of them with unknown outcome")
        self._say(f"{self.writer.check()} acknowledged writes, none lost")
        return failures

    def _say_longest_wait(self, since: float, until: float) -> None:
        gaps = [history.longest_gap(since, until) for history in self.writer.histories]
        self._say(
            f"longest time between two acknowledged writes of a key: {1000 * max(gaps):.0f} ms"
        )

    def _nodes(self) -> Sequence[NodeStatus]:
        return self.cluster.state().nodes

    def _node(self, name: str) -> NodeStatus:
        node = self.cluster.state().node(name)
        if node is None:
            raise Problem(f"the operator no longer knows agent {name}")
        return node

    def _zone(self) -> ZoneStatus:
        zone = self.cluster.state().zone(self.zone_name)
        if zone is None:
            raise Problem(f"the operator no longer knows zone {self.zone_name}")
        return zone

    def _is_settled(self) -> bool:
        zone = self._zone()
        busy = zone.migrations_running + zone.migrations_queued
        return zone.available == zone.partitions and not busy

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not is_so():
            if time.monotonic() > deadline:
                raise Problem(
                    f"waited {SETTLE_S:g} s for {what}, without success; state of the zone:"
                    f" {self._zone().sentence}"
                )
            time.sleep(POLL_S)

    @property
    def _plain(self) -> bool:
        """Whether the output is no terminal: progress bars would be noise in a log."""
        return not self.console.is_terminal

    @contextmanager
    def _count_bar(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        columns = (TextColumn("   {task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self.console, transient=True, disable=self._plain) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.update(task, completed=min(count, total))


def refuse_failures(failures: Sequence[Failure], what: str) -> None:
    """Raise Problem if a command failed during `what`, which clients should not notice."""
    if failures:
        raise Problem(
            f"{len(failures)} commands failed while {what}; the first, on key"
            f" {failures[0].key}: {failures[0].text}"
        )


def words_of_parked(count: int, longest_s: float) -> str:
    """Return how many commands waited for a hand-over, and a bound of the longest wait."""
    if not count:
        return "no command waited for a hand-over"
    if longest_s == float("inf"):
        return f"{count} commands waited for a hand-over, the longest for more than agents measure"
    return f"{count} commands waited for a hand-over, each at most {1000 * longest_s:.0f} ms"
