"""Which states a small cluster can be in: all orders of delivery, with loss and crashes, no state
twice.  A state is small numbers: those of its processes' states, and what is on its way.
"""

import pickle
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ConsistencyMode
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import AskInventory, Inventory, Members, RowsStored
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.metastore import Key, ShardKey, Value
from quorate_exhaustive.invariants import Held, check_recoverable, check_trusted, held_on
from quorate_exhaustive.processes import (
    METASTORE,
    SETTINGS,
    UID,
    Agent,
    Disk,
    MasterAtWork,
    Processes,
    Step,
    Write,
    Written,
    decode,
)
from quorate_exhaustive.state_text import state_text

AT_ONCE = (Members, AskInventory, Inventory)
"""What the registry tells, and what it asks after a start, is heard at once: every order of it with
everything else would multiply the states, and it moves no data."""

Flight = tuple[str, str, bytes]
"""(from, to, message)."""


Deed = tuple[str, str | int]
"""What happens, to which agent or message."""


class Budget(NamedTuple):
    """How much may still happen besides deliveries."""

    writes: int = 0
    crashes: int = 0
    losses: int = 0
    repeats: int = 0
    ticks: int = 0
    looks: int = 0
    masters: int = 0
    drains: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()


class State(NamedTuple):
    """A cluster: processes by number (agents in order of name; -n - 1: crashed), messages on
    their way by number, what the metastore holds by number, what may still happen, what clients
    were told."""

    agents: tuple[int, ...]
    master: int
    flying: tuple[int, ...]
    stored: int
    budget: Budget
    told: frozenset[Written]
    term: int = 1


class Found(NamedTuple):
    """What an exploration has seen."""

    states: int
    depth: int
    local_states: int
    complete: bool
    quiet: int
    outcomes: dict[str, int]


class Broken(InvariantError):
    """An invariant does not hold; the message has the way there."""


class Explorer:
    """All states from one start."""

    def __init__(
        self,
        names: tuple[str, ...],
        replicas: int,
        budget: Budget,
        mode: ConsistencyMode = ConsistencyMode.STRONG_CONSISTENCY,
        lost: tuple[str, ...] = (),
    ) -> None:
        self.names = names
        self._mode = mode
        self._lost = lost
        self.processes = Processes()
        self._serving: dict[int, bool] = {}
        self._held: dict[int, Held] = {}
        self._trusted_by: dict[int, tuple[str, ...]] = {}
        self._checked: set[tuple[object, ...]] = set()
        self._index = {name: at for at, name in enumerate(names)}
        self._flights: list[Flight] = []
        self._is_heard_at_once: list[bool] = []
        self._flight_numbers: dict[Flight, int] = {}
        self._contents: list[dict[Key, Value]] = []
        self._content_numbers: dict[bytes, int] = {}
        self._writes: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._rows: dict[int, PartitionRow] = {}
        self._hellos: dict[int, Hello] = {}
        self.start = self._settled(replicas, budget)

    # --- the start -------------------------------------------------------------------------------

    def _settled(self, replicas: int, budget: Budget) -> State:
        """A cluster with a zone whose copies all serve: one order of events, nothing lost."""
        processes = self.processes
        agents = [Agent(name, Disk()) for name in self.names]
        hellos = {agent.name: agent.hello() for agent in agents}
        state = State(
            tuple(processes.number(agent) for agent in agents),
            processes.number(MasterAtWork(1, {})),
            (),
            self._content({}),
            Budget(),
            frozenset(),
        )
        for name in self.names:
            state = self._input(state, MASTER, ("greeted", hellos[name]))
            for other in self.names:
                if other != name:
                    state = self._input(state, name, ("greeted", hellos[other]))
        state = self._input(self._drained(state), MASTER, ("zone", replicas, self._mode))
        state = self._drained(state)
        if self._mode is ConsistencyMode.HIGH_AVAILABILITY:
            for _ in range(0, SETTINGS.failure_detection_ms, SETTINGS.retry_ms):
                state = self._input(state, MASTER, ("tick",))  # a new master does not reset
            state = self._row_heard(self._drained(state))
        for name in self._lost:
            state = self._drained(self._crash(state, name))
        if self._lost:
            state = self._row_heard(self._drained(self._looked(state)))
        return state._replace(budget=budget)

    def _row_heard(self, state: State) -> State:
        """The master knows that all have the row.  Later rows are not confirmed: see COMMUTES."""
        stored = msgspec.msgpack.encode(RowsStored(UID, ((0, self.row(state).version),)))
        for name, number in zip(self.names, state.agents, strict=True):
            if number >= 0:
                state = self._input(state, MASTER, ("message", name, stored))
        return state

    def _drained(self, state: State) -> State:
        while state.flying:
            state = self._deliver(state, state.flying[0])
        return state

    # --- one action ------------------------------------------------------------------------------

    def _input(self, state: State, name: str, given: tuple[object, ...]) -> State:
        if name == MASTER:
            step = self.processes.apply(state.master, given)
            state = state._replace(master=step.after)
        else:
            at = self._index[name]
            step = self.processes.apply(state.agents[at], given)
            numbers = (*state.agents[:at], step.after, *state.agents[at + 1 :])
            state = state._replace(agents=numbers, told=state.told | frozenset(step.answered))
        return self._sent(state, name, step)

    def _flight(self, flight: Flight) -> int:
        number = self._flight_numbers.get(flight)
        if number is None:
            number = self._flight_numbers[flight] = len(self._flights)
            self._flights.append(flight)
            is_message = flight[1] != METASTORE
            self._is_heard_at_once.append(is_message and isinstance(decode(flight[2]), AT_ONCE))
        return number

    def _content(self, objects: dict[Key, Value]) -> int:
        text = state_text(objects)
        number = self._content_numbers.get(text)
        if number is None:
            number = self._content_numbers[text] = len(self._contents)
            self._contents.append(objects)
        return number

    def _sent(self, state: State, source: str, step: Step) -> State:
        """Put on their way what was sent; what is heard at once is delivered now."""
        at_once: list[int] = []
        later: list[int] = []
        for to, data in step.sends:
            if to in self._index and state.agents[self._index[to]] < 0:
                continue  # nobody is there
            number = self._flight((source, to, data))
            (at_once if self._is_heard_at_once[number] else later).append(number)
        if later:
            state = state._replace(flying=tuple(sorted((*state.flying, *later))))
        for number in at_once:
            source, to, data = self._flights[number]
            state = self._input(state, to, ("message", source, data))
        return state

    def _without(self, state: State, flight: int) -> State:
        at = state.flying.index(flight)
        return state._replace(flying=state.flying[:at] + state.flying[at + 1 :])

    def _deliver(self, state: State, number: int) -> State:
        state = self._without(state, number)
        source, to, data = self._flights[number]
        if to != METASTORE:
            return self._input(state, to, ("message", source, data))
        stored, present = self._stored_after(state.stored, number)
        state = state._replace(stored=stored)
        if pickle.loads(data).term != state.term:
            return state  # of a master that is gone: nobody waits for the answer
        return self._input(state, MASTER, ("answered", data, present))

    def _stored_after(self, stored: int, flight: int) -> tuple[int, bytes]:
        """What is stored after a write, and the object that was to be written."""
        after = self._writes.get((stored, flight))
        if after is None:
            write: Write = pickle.loads(self._flights[flight][2])
            objects = dict(self._contents[stored])
            if objects.get(write.key) == write.expected:
                if write.value is None:
                    objects.pop(write.key, None)
                else:
                    objects[write.key] = write.value
            present = pickle.dumps(objects.get(write.key))
            after = self._writes[stored, flight] = (self._content(objects), present)
        return after

    def actions(self, state: State) -> Iterator[tuple[Deed, State]]:
        """Everything that may happen next, in words, and where it leads."""
        budget = state.budget
        for flight in dict.fromkeys(state.flying):
            yield ("arrives", flight), self._deliver(state, flight)
            if self._flights[flight][1] == METASTORE:
                continue
            if budget.losses:
                less = budget._replace(losses=budget.losses - 1)
                yield ("is lost", flight), self._without(state, flight)._replace(budget=less)
            if budget.repeats:
                less = budget._replace(repeats=budget.repeats - 1)
                flying = tuple(sorted((*state.flying, flight)))
                again = state._replace(flying=flying, budget=less)
                yield ("arrives, and will again", flight), self._deliver(again, flight)
        for name, number in zip(self.names, state.agents, strict=True):
            if number < 0:
                yield ("starts again", name), self._restart(state, name)
                continue
            if budget.writes and self._serves(number):
                spent = state._replace(budget=budget._replace(writes=budget.writes - 1))
                yield ("takes a write", name), self._input(spent, name, ("write", budget.writes))
            if budget.crashes and (not budget.victims or name in budget.victims):
                yield ("crashes", name), self._crash(state, name)
        if budget.ticks and not state.flying:
            spent = state._replace(budget=budget._replace(ticks=budget.ticks - 1))
            yield ("passes", "time"), self._tick(spent)
        if budget.looks and min(state.agents) < 0:
            yield ("judges the losses", "the master"), self._looked(state)
        if budget.masters:
            yield ("is followed by another", "the master"), self._next_master(state)
        for name in budget.drains:
            spent = state._replace(budget=budget._replace(drains=()))
            yield ("is to be drained", name), self._input(spent, MASTER, ("drain", name))

    def _serves(self, number: int) -> bool:
        agent = self.processes.load(number) if number not in self._serving else None
        if agent is not None:
            assert isinstance(agent, Agent)
            self._serving[number] = agent.serving is not None
        return self._serving[number]

    def _crash(self, state: State, name: str) -> State:
        at = self._index[name]
        flying = tuple(n for n in state.flying if self._flights[n][1] != name)
        budget = state.budget._replace(crashes=state.budget.crashes - 1)
        numbers = (*state.agents[:at], -state.agents[at] - 1, *state.agents[at + 1 :])
        crashed = state._replace(agents=numbers, flying=flying, budget=budget)
        return self._input(crashed, MASTER, ("gone", name))

    def _looked(self, state: State) -> State:
        """The master hears from those that are there, and judges the losses."""
        there = tuple(n for n, at in zip(self.names, state.agents, strict=True) if at >= 0)
        budget = state.budget._replace(looks=state.budget.looks - 1)
        return self._input(state._replace(budget=budget), MASTER, ("heard", there))

    def _next_master(self, state: State) -> State:
        """Another holds the mandate.  What the one before has sent may still arrive, what it wrote
        may still be stored."""
        term = state.term + 1
        flying = tuple(n for n in state.flying if self._flights[n][1] != MASTER)
        objects = self._contents[state.stored]
        state = state._replace(
            master=self.processes.number(MasterAtWork(term, objects)),
            flying=flying,
            term=term,
            budget=state.budget._replace(masters=state.budget.masters - 1),
        )
        hello = Hello(FORMAT_VERSION, "master", "all", "m", master_term=term)
        for name, number in zip(self.names, state.agents, strict=True):
            if number >= 0:
                state = self._input(state, name, ("greeted", hello))
                state = self._input(state, MASTER, ("greeted", self._hello(number)))
        return state

    def _restart(self, state: State, name: str) -> State:
        at = self._index[name]
        step = self.processes.apply(-state.agents[at] - 1, ("restart",))
        numbers = (*state.agents[:at], step.after, *state.agents[at + 1 :])
        state = self._sent(state._replace(agents=numbers), name, step)
        hello = self._hello(step.after)
        state = self._input(state, MASTER, ("greeted", hello))
        for other, number in zip(self.names, state.agents, strict=True):
            if other != name and number >= 0:
                state = self._input(state, other, ("greeted", hello))
                state = self._input(state, name, ("greeted", self._hello(number)))
        return state

    def _hello(self, number: int) -> Hello:
        if number not in self._hellos:
            process = self.processes.load(number)
            assert isinstance(process, Agent)
            self._hellos[number] = process.hello()
        return self._hellos[number]

    def _tick(self, state: State) -> State:
        for name, number in zip(self.names, state.agents, strict=True):
            if number >= 0:
                state = self._input(state, name, ("tick",))
        return self._input(state, MASTER, ("tick",))

    # --- all of them -----------------------------------------------------------------------------

    def row(self, state: State) -> PartitionRow:
        """What the metastore holds."""
        row = self._rows.get(state.stored)
        if row is None:
            rows = self._contents[state.stored][ShardKey(UID, 0)]
            assert isinstance(rows, tuple)
            row = self._rows[state.stored] = rows[0]
        return row

    def explore(self, states_max: int = 1 << 62) -> Found:
        """Breadth first until nothing is new, or so many states were seen."""
        came_from: dict[State, tuple[State, Deed] | None] = {self.start: None}
        queue: deque[tuple[State, int]] = deque([(self.start, 0)])
        depth = quiet = 0
        outcomes: dict[str, int] = {}
        while queue and len(came_from) < states_max:
            state, depth = queue.popleft()
            try:
                self._check(state)
                is_end = True
                for what, after in self.actions(state):
                    is_end = False
                    if after not in came_from:
                        came_from[after] = (state, what)
                        queue.append((after, depth + 1))
            except InvariantError as error:
                raise Broken(f"{error}\n{self._way(came_from, state)}") from error
            if is_end:
                quiet += 1
                name = self._outcome(state)
                outcomes[name] = outcomes.get(name, 0) + 1
        return Found(len(came_from), depth, len(self.processes), not queue, quiet, outcomes)

    def _check(self, state: State) -> None:
        """Check what can be lost; it depends on no message, and so on less than the state."""
        trusted = self._trusted(state.master)
        about = (state.agents, state.stored, state.told, trusted)
        if about in self._checked:
            return
        held = {name: self._held_by(n) for name, n in zip(self.names, state.agents, strict=True)}
        check_recoverable(self.row(state), held, state.told)
        check_trusted(trusted, held, state.told)
        self._checked.add(about)

    def _trusted(self, number: int) -> tuple[str, ...]:
        """The voters of which the master says that they have everything, if a majority is lost."""
        if number not in self._trusted_by:
            process = self.processes.load(number)
            assert isinstance(process, MasterAtWork)
            zone = process.master.zones[UID]
            part = zone.parts[0]
            self._trusted_by[number] = tuple(
                voter.node for voter in part.row.voters if zone.resets.has_all(part, voter)
            )
        return self._trusted_by[number]

    def _held_by(self, number: int) -> Held:
        number = number if number >= 0 else -number - 1
        if number not in self._held:
            process = self.processes.load(number)
            assert isinstance(process, Agent)
            self._held[number] = held_on(process.disk)
        return self._held[number]

    def _outcome(self, state: State) -> str:
        row = self.row(state)
        served = sum(n >= 0 and self._serves(n) for n in state.agents)
        return f"{'/'.join(map(str, row.replicas))}, {len(state.told)} told, {served} serve"

    def _words(self, deed: Deed) -> str:
        what, whom = deed
        if isinstance(whom, str):
            return f"{whom} {what}"
        source, to, data = self._flights[whom]
        if to == METASTORE:
            return f"{pickle.loads(data)} {what}"
        return f"{source or 'master'} → {to or 'master'} {decode(data)} {what}"

    def _way(self, came_from: dict[State, tuple[State, Deed] | None], state: State) -> str:
        steps: list[str] = []
        at = came_from[state]
        while at is not None:
            steps.append(self._words(at[1]))
            at = came_from[at[0]]
        return "\n".join(f"{n:3} {what}" for n, what in enumerate(reversed(steps), 1))
