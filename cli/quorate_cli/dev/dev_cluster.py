"""A cluster of real processes on this machine: one embedded operator and its agents."""

import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from quorate.wire.schema.names import NAME_LENGTH_MAX, is_short_name
from quorate_cli.dev.copied_folder import check_no_copy_runs
from quorate_cli.dev.membership import HOST, POLL_S, START_S, Membership
from quorate_cli.dev.ports import (
    CLIENT_PORT,
    choose_client_port_base,
    client_port,
    is_free,
    taken_port,
)
from quorate_cli.dev.process_states import last_words_of, stop_reason
from quorate_cli.dev.removal import is_registered, wait_until_drained, wait_until_forgotten
from quorate_cli.dev.set_aside import (
    check_all_is_lost,
    check_can_be_filled,
    newest_set_aside,
    put_back,
    set_aside,
)
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import ClusterState, fetch_state
from quorate_cli.objects.operator_api import OperatorApi, read_token
from quorate_cli.processes.cluster_folder import (
    FORMAT_VERSION,
    OPERATOR,
    AgentEntry,
    ClusterEntry,
    ClusterFolder,
)
from quorate_cli.processes.process import (
    Started,
    is_alive,
    kill,
    python,
    send,
    start_noted,
    wait_until_gone,
)
from quorate_cli.terminal.problem import Problem

STOP_S = 20.0
"""Seconds in which a process must stop by itself; then it is killed, and the command says so."""
AGENTS_MAX = 64
"""A limit per machine: a typing error must not start a thousand processes."""


class _NotYet(Problem):
    """A process that was started does not listen yet."""


class DevCluster:
    """Starts, stops and changes the processes of one folder.

    Each public method is one command; those that change something hold the folder's lock.
    """

    def __init__(self, folder: ClusterFolder, say: Callable[[str], None]) -> None:
        self.folder = folder
        self._say = say
        self._membership = Membership(self, say)

    # --- commands --------------------------------------------------------------------------------

    def up(
        self,
        cluster: str | None = None,
        agents: int | None = None,
        client_port_base: int | None = None,
        debug_commands: bool | None = None,
        wait: float = START_S,
    ) -> None:
        """Make the cluster if needed, start what is not running, and wait until all agents take
        part.

        Then wait at most `wait` seconds until all zones serve.  Arguments that are None keep the
        values the cluster was made with.  A second call changes nothing, except that it ends drains
        of agents.  An agent that refuses to start does not keep the others from starting; the
        Problem raised at the end has its reason.
        """
        if agents is not None:
            check_count("--agents", agents)
        if cluster is not None and not is_short_name(cluster):
            raise Problem(
                f"--name {cluster!r}: use at most {NAME_LENGTH_MAX} lower-case letters, digits and"
                " '-', and no '-' at either end"
            )
        with self.folder.locked(may_be_new=True):
            before = self.folder.read() if self.folder.exists() else None
            if before is not None:
                check_no_copy_runs(self.folder, before)
            entry = self._make_or_read(cluster, agents, client_port_base, debug_commands)
            names = [agent.name for agent in entry.agents]
            running, _ = self._running_or_not()
            self._tell_of_later_options(before, entry, [each for each in running if each in names])
            if len(running) == len(names) + 1:
                self._say(f"cluster {entry.cluster} is already up")
            elif running:
                self._say(f"already running: {', '.join(running)}; starting the others")
            try:
                self._start_operator()
                refused = self._start_agents(entry, names)
                if len(refused) == len(names):
                    raise Problem("; ".join(refused.values()))
                self._membership.declare(self.folder.read())
                self._membership.wait_for([name for name in names if name not in refused])
                self._membership.take_drains_back(entry)
                missing = self._membership.wait_until_serving(wait)
                if refused or missing:
                    raise Problem("; ".join([*refused.values(), *missing]))
            except (KeyboardInterrupt, SystemExit):
                self._name_what_is_left("interrupted")
                raise
            except _NotYet:
                self._name_what_is_left("not finished")
                raise

    def _running_or_not(self) -> tuple[list[str], list[str]]:
        names = [OPERATOR, *(agent.name for agent in self.folder.read().agents)]
        running = [name for name in names if self.folder.process(name) is not None]
        return running, [name for name in names if name not in running]

    def _name_what_is_left(self, why: str) -> None:
        running, missing = self._running_or_not()
        parts = [
            f"{what}: {', '.join(names)}"
            for what, names in (("running", running), ("not running", missing))
            if names
        ]
        with suppress(OSError):  # the terminal may be gone
            self._say(
                f"{why}; {'; '.join(parts)}; `quorate dev up` continues,"
                " `quorate dev down` stops all processes"
            )

    def down(self, delete_data: bool = False) -> None:
        """Stop every process; the data stays, unless it is to be deleted."""
        with self.folder.locked():
            try:
                entry = self.folder.read()
            except Problem as problem:
                raise self._stop_those_found(problem) from None
            if not self._running_or_not()[0]:
                self._say(f"cluster {entry.cluster} is already down")
            # The operator first: it must not move primaries because agents leave.
            self._stop([OPERATOR])
            self._stop([agent.name for agent in entry.agents])
            if delete_data:
                self.folder.delete()

    def _stop_those_found(self, problem: Problem) -> Problem:
        """Stop the processes of a folder whose entry cannot be read; return what to tell then."""
        found = self.folder.found()
        running = [name for name in found if self.folder.process(name) is not None]
        self._stop([OPERATOR])
        self._stop([name for name in found if name != OPERATOR])
        return Problem(f"{problem}; stopped: {', '.join(running)}") if running else problem

    def kill(self, name: str) -> None:
        """Kill a process by SIGKILL, as in a crash."""
        with self.folder.locked():
            self.check_known(name)
            kill(self._running(name))
            self.folder.pid_file(name).unlink(missing_ok=True)

    def start(self, name: str) -> None:
        """Start one process that is not running."""
        with self.folder.locked():
            entry = self.check_known(name)
            if self.folder.process(name) is not None:
                self._say(f"{name} is already running")
                return
            check_no_copy_runs(self.folder, entry)
            if name == OPERATOR:
                self._start_operator()
                return
            self._start_agent(entry, name)

    def set_aside(self, name: str) -> None:
        """Keep an agent's data elsewhere in its folder, so that its next start is over a new store.

        The other agents fill that store.  Raises Problem if they could not, as far as the operator
        can tell.
        """
        with self.folder.locked():
            entry = self.check_known(name)
            agent = next((agent for agent in entry.agents if agent.name == name), None)
            if agent is None:
                raise Problem(f"{name} is not an agent: name an agent")
            if self.folder.process(name) is not None:
                raise Problem(f"{name} is running: stop it first, with `quorate dev stop {name}`")
            zones = map(resources.zone, resources.fetch_all(self.api(), resources.ZONE))
            check_can_be_filled(name, self.state(), list(zones))
            reason = f"`quorate dev start {name} --set-aside`; before that: {self.last_words(name)}"
            where = set_aside(self._agent_command(entry, agent), reason)
            self._say(f"{name}: its data is set aside in {where}; the others fill a new store")

    def put_back(self) -> None:
        """Give all agents back what they set aside last; only if no partition has a store left."""
        with self.folder.locked():
            entry = self.folder.read()
            zones = map(resources.zone, resources.fetch_all(self.api(), resources.ZONE))
            check_all_is_lost(self.state(), list(zones))
            found = {
                agent: newest
                for agent in entry.agents
                if (newest := newest_set_aside(self.folder.data(agent.name)))
            }
            is_over = all(
                newest.is_back and self.folder.process(agent.name) is not None
                for agent, newest in found.items()
            )
            if is_over:  # after an interrupted call they do not run
                raise Problem("nothing was put back: no agent has data that was set aside")
            self.folder.made_secret(entry.cluster)  # without it none could start again
            self._stop([agent.name for agent in found])
            for agent, newest in found.items():
                if newest.is_back:
                    self._say(f"{agent.name}: set-aside-{newest.number} was put back before")
                    continue
                try:
                    put_back(self._agent_command(entry, agent), newest.number)
                except Problem as problem:
                    raise Problem(
                        f"{agent.name}: {problem}; agents with data that was set aside are stopped:"
                        " correct this, then `quorate dev put-back` again, which goes on there"
                    ) from None
                self._say(f"{agent.name}: set-aside-{newest.number} was put back")
            names = [agent.name for agent in entry.agents]
            refused = self._start_agents(entry, names)
            self._membership.declare(self.folder.read())
            if refused:
                raise Problem("; ".join(refused.values()))
            self._membership.wait_for(names)

    def start_agent(self, name: str) -> None:
        """Start one agent, even without a running operator; raise Problem if it refuses."""
        with self.folder.locked():
            entry = self.check_known(name)
            check_no_copy_runs(self.folder, entry)
            refused = self._start_agents(entry, [name])
            if refused:
                raise Problem(refused[name])

    def stop(self, name: str) -> None:
        """Stop a process by SIGTERM: an agent hands its primaries over before it ends."""
        with self.folder.locked():
            self.check_known(name)
            self._running(name)
            self._stop([name])

    def restart(self, name: str) -> None:
        """Stop a process and start it again; raise Problem, before that, if it could not start."""
        with self.folder.locked():
            entry = self.check_known(name)
            self._running(name)
            self.folder.made_secret(entry.cluster)
            check_no_copy_runs(self.folder, entry)
            self._stop([name])
            self.start(name)

    def add(self) -> str:
        """Start one more agent and make it a member; return its name."""
        with self.folder.locked():
            entry = self.folder.read()
            if len(entry.agents) >= AGENTS_MAX:
                raise Problem(f"cluster {entry.cluster} has {AGENTS_MAX} agents, the maximum")
            self.api()
            name = f"agent-{entry.next_number}"
            entry = msgspec.structs.replace(
                entry,
                agents=(*entry.agents, AgentEntry(name)),
                next_number=entry.next_number + 1,
            )
            self.folder.write(entry)
            self._start_agent(entry, name)
            return name

    def remove(self, name: str, seconds: float, progress: Callable[[int, int], None]) -> None:
        """Move everything off an agent, then stop it and delete its data.

        `progress` is called with how many copies there were at first and how many are left.  If the
        copies cannot go elsewhere within `seconds`, the agent stays a full member and Problem is
        raised.
        """
        with self.folder.locked():
            entry = self.check_known(name)
            if name == OPERATOR:
                raise Problem(
                    "the operator cannot be removed: stop the cluster with `quorate dev down`"
                )
            api = self.api()
            if len(entry.agents) == 1:
                raise Problem(
                    f"{name} is the last agent of cluster {entry.cluster}: to delete the cluster"
                    " and its data, use `quorate dev down --delete-data`"
                )
            self._membership.check_declared(entry)
            deadline = time.monotonic() + seconds
            which = f"cluster={entry.cluster}"
            if is_registered(self, entry, name):
                try:
                    api.post(f"/nodes/{name}/drain?{which}")
                    wait_until_drained(self, name, deadline, progress)
                    self._stop([name])
                    self._mark_forgotten(entry, name)
                    wait_until_forgotten(api, f"/nodes/{name}?{which}", name, deadline)
                except BaseException:
                    self._write(entry)
                    with suppress(Problem):  # the first error is the one the user must know
                        api.post(f"/nodes/{name}/undrain?{which}")
                    raise
            self._stop([name])
            entry = msgspec.structs.replace(
                entry, agents=tuple(agent for agent in entry.agents if agent.name != name)
            )
            self.folder.write(entry)
            self._membership.declare(entry)
            shutil.rmtree(self.folder.data(name).parent)

    def _mark_forgotten(self, entry: ClusterEntry, name: str) -> None:
        agents = [
            msgspec.structs.replace(agent, forgotten=agent.name == name) for agent in entry.agents
        ]
        self.folder.write(msgspec.structs.replace(entry, agents=tuple(agents)))

    # --- what is there ---------------------------------------------------------------------------

    def api(self) -> OperatorApi:
        """Return the API of the running operator; raise Problem if it is not running."""
        self.folder.read()
        address = self.folder.operator_address()
        if address is None:
            reason = stop_reason(self.folder, OPERATOR)
            raise Problem(
                f"the operator of folder {self.folder.path} is not running: start it with"
                f" `quorate dev up`{f'; it ended because: {reason}' if reason else ''}"
            )
        token = read_token(self.folder.token_file)
        if not token:
            raise Problem(
                f"{self.folder.token_file} is missing or cannot be read, and the operator answers"
                " only those that know it: `quorate dev restart operator` writes it anew"
            )
        return OperatorApi(HOST, address.api_port, token=token)

    def has_zones(self) -> bool:
        """Return whether any zone is declared."""
        return bool(resources.fetch_all(self.api(), resources.ZONE))

    def state(self) -> ClusterState:
        """Return everything the operator knows of this cluster now."""
        return fetch_state(self.api(), self.folder.read().cluster)

    # --- starting --------------------------------------------------------------------------------

    def _make_or_read(
        self,
        cluster: str | None,
        agents: int | None,
        client_port_base: int | None,
        debug_commands: bool | None,
    ) -> ClusterEntry:
        if not self.folder.exists():
            count = 3 if agents is None else agents
            base = client_port_base
            if base is None:
                base = choose_client_port_base()
                self._tell_of_taken_port(base)
            entry = ClusterEntry(
                FORMAT_VERSION,
                cluster or "main",
                tuple(AgentEntry(f"agent-{number}") for number in range(1, count + 1)),
                count + 1,
                base,
                bool(debug_commands),
                str(self.folder.path),
            )
            self.folder.write(entry)
            return entry
        entry = self.folder.read()
        if cluster is not None and cluster != entry.cluster:
            raise Problem(
                f"folder {self.folder.path} belongs to cluster {entry.cluster}, not {cluster}:"
                " omit --name, or name another folder with --folder"
            )
        if agents is not None and agents != len(entry.agents):
            raise Problem(
                f"cluster {entry.cluster} has {len(entry.agents)} agents, not {agents}: change the"
                f" number with `quorate dev scale {agents}`"
            )
        if client_port_base is not None:
            entry = msgspec.structs.replace(entry, client_port_base=client_port_base)
        if debug_commands is not None:
            entry = msgspec.structs.replace(entry, debug_commands=debug_commands)
        entry = msgspec.structs.replace(entry, path=str(self.folder.path))
        self._write(entry)
        return entry

    def _tell_of_later_options(
        self, before: ClusterEntry | None, entry: ClusterEntry, running: Sequence[str]
    ) -> None:
        """Say which changed options the running agents obey only after a restart."""
        if before is None or not running:
            return
        restart = f"`quorate dev restart NAME` (running: {', '.join(running)})"
        if entry.debug_commands != before.debug_commands:
            option = "--debug-commands" if entry.debug_commands else "--no-debug-commands"
            self._say(f"{option} takes effect on an agent at {restart}")
        if entry.client_port_base != before.client_port_base:
            self._say(
                f"--client-port-base takes effect on an agent at {restart}; zones keep the ports"
                " that they have"
            )

    def _tell_of_taken_port(self, base: int) -> None:
        if base != CLIENT_PORT:
            self._say(
                f"port {taken_port(CLIENT_PORT) or CLIENT_PORT} is taken, probably by another"
                f" cluster: the client ports of this cluster begin at {base}"
            )

    def _start_operator(self) -> None:
        if self.folder.process(OPERATOR) is None:
            # Made here: the operator would draw another secret in place of a lost one.
            self.folder.made_secret(self.folder.read().cluster)
            data = self.folder.data(OPERATOR)
            data.mkdir(parents=True, exist_ok=True)
            where = ("--data", str(data), "--secrets", str(self.folder.secrets))
            arguments = python("quorate_operator", "embedded", *where, "--api", f"{HOST}:0")
            process = self._launch(OPERATOR, arguments)
            self._say(f"operator: process {process.pid}")
        self._wait(OPERATOR, self.folder.operator_address)

    def _start_agent(self, entry: ClusterEntry, name: str) -> None:
        """Start one agent and wait until it takes part; raise Problem if it refuses."""
        refused = self._start_agents(entry, [name])
        self._membership.declare(self.folder.read())
        if refused:
            raise Problem(refused[name])
        self._membership.wait_for([name])

    def _start_agents(self, entry: ClusterEntry, names: Sequence[str]) -> dict[str, str]:
        """Start those of `names` that do not run; wait until each listens or has ended.

        Return agent -> why it ended.
        """
        refused: dict[str, str] = {}
        for agent in entry.agents:
            if agent.name in names and self.folder.process(agent.name) is None:
                process = self._launch(agent.name, self._agent_command(entry, agent))
                self._say(f"{agent.name}: process {process.pid}")
        for name in names:
            try:
                self._wait(name, partial(self.folder.agent_address, name))
            except Problem as problem:
                refused[name] = str(problem)
        # Includes agents that were running: the command that started them may have been
        # interrupted.
        agents = tuple(map(self._with_port, entry.agents))
        self._write(msgspec.structs.replace(entry, agents=agents))
        return refused

    def _with_port(self, agent: AgentEntry) -> AgentEntry:
        address = self.folder.agent_address(agent.name)
        return agent if address is None else AgentEntry(agent.name, address.peer_port)

    def _write(self, entry: ClusterEntry) -> None:
        if entry != self.folder.read():  # an unchanged entry needs no room on a full disk
            self.folder.write(entry)

    def _agent_command(self, entry: ClusterEntry, agent: AgentEntry) -> list[str]:
        data = self.folder.data(agent.name)
        data.mkdir(parents=True, exist_ok=True)
        # Another program may have the port by now; members are told the new one.
        port = agent.peer_port if is_free(agent.peer_port) else 0
        return python(
            "quorate_agent",
            *("--name", agent.name, "--data", str(data), "--cluster", entry.cluster),
            *("--secret-file", str(self.folder.made_secret(entry.cluster))),
            *("--peer", f"{HOST}:{port}", "--admin", f"{HOST}:0"),
            *("--client-host", HOST, "--client-port-base", str(client_port(entry, agent))),
            *(["--debug-commands"] if entry.debug_commands else []),
        )

    def _launch(self, name: str, arguments: list[str]) -> Started:
        folder = self.folder
        return start_noted(arguments, folder.log(name), folder.pid_file(name), str(folder.path))

    def _wait(self, name: str, address: Callable[[], object | None]) -> None:
        """Wait until the process listens; raise _NotYet if that takes too long.

        If it ended instead, the Problem raised has its last words.
        """
        deadline = time.monotonic() + START_S
        while address() is None:
            if self.folder.process(name) is None:
                raise Problem(f"{name} ended at once: {self.last_words(name)}")
            if time.monotonic() > deadline:
                raise _NotYet(
                    f"{name} is not listening after {START_S:g} s: see its log"
                    f" {self.folder.log(name)}; it still starts, and `quorate dev up` goes on with"
                    " it"
                )
            time.sleep(POLL_S)

    def last_words(self, name: str) -> str:
        """Return the last message of the process, and where its log is."""
        return last_words_of(self.folder, name)

    # --- stopping --------------------------------------------------------------------------------

    def _stop(self, names: Sequence[str]) -> None:
        """Send SIGTERM to all, then wait for all."""
        running = [(name, p) for name in names if (p := self.folder.process(name)) is not None]
        for _, process in running:
            send(process, signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for name, process in running:
            # No second SIGTERM: the agent would not wait until its primaries are taken over.
            if wait_until_gone(process, max(0.0, deadline - time.monotonic())):
                self._say(f"{name}: stopped")
            else:
                kill(process)
                self._say(f"{name}: did not stop within {STOP_S:g} s and was killed")
        for name in names:
            self.folder.pid_file(name).unlink(missing_ok=True)

    # --- checks ----------------------------------------------------------------------------------

    def check_known(self, name: str) -> ClusterEntry:
        """Return the cluster's entry; raise Problem unless it has a process of that name."""
        entry = self.folder.read()
        known = [OPERATOR, *(agent.name for agent in entry.agents)]
        if name not in known:
            raise Problem(
                f"cluster {entry.cluster} has no process {name!r}: name one of {', '.join(known)}"
            )
        return entry

    def _running(self, name: str) -> Started:
        process = self.folder.process(name)
        if process is None or not is_alive(process):
            raise Problem(f"{name} is not running: start it with `quorate dev start {name}`")
        return process


def check_count(what: str, agents: int) -> None:
    """Raise Problem if a cluster cannot have this number of agents."""
    if not 1 <= agents <= AGENTS_MAX:
        raise Problem(f"{what} {agents}: write a number from 1 to {AGENTS_MAX}")
