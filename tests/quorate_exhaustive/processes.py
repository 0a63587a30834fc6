"""Agents and master as values: a process in some state takes one input and is in another.

An input and what it does depend on nothing else, so each pair of state and input is computed once,
however many states of the cluster it occurs in.  The clock stands still but for `tick`; leases are
granted for ever and nothing waits for one: reads are the simulator's subject, not this one's.
"""

import copyreg
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from quorate.facts.time import Now
from quorate.facts.zone import ConsistencyMode, ZoneRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.shared_leases import SharedLeases
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.master.master import Master
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import (
    AgentReport,
    FromMaster,
    RowsStored,
    TransferProgress,
    ZoneReady,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.outbox import MASTER
from quorate.protocol.messages.replication import Heartbeat, HeartbeatAck
from quorate.protocol.metastore import Key, Value
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Storage
from quorate.protocol.zone_master import decide_partition
from quorate.protocol.zone_master.partition_state import Nodes, PartitionState
from quorate_agent.storage.memory import MemoryStorage
from quorate_exhaustive.state_text import state_text
from quorate_sim.changed import changed

SETTINGS = ProtocolSettings()
START_MS = 1_000_000
UID = "zone"

METASTORE = "metastore"
KEY = b"k"


class Endless(dict[str, int]):
    """A lease of everybody."""

    def get(self, node: str, default: object = None) -> Any:
        return 1 << 60


class Granted(Leases):
    """Leases that never end and that nobody has to wait for."""

    def __init__(self, settings: ProtocolSettings, incarnation: int, started_ms: int) -> None:
        super().__init__(settings, incarnation, started_ms)
        self.shared = SharedLeases(self.held)

    def held_until(self, node: str) -> int:
        return 1 << 60

    @property
    def held(self) -> Mapping[str, int]:
        return Endless()

    def granted_until(self, node: str) -> int:
        return 0


class Written(NamedTuple):
    """A write that a primary has taken: who may be told of it, under which counter."""

    op: int
    term: int
    counter: int


class Write(NamedTuple):
    """A master's compare-and-set on its way: it counts while `expected` is what is stored."""

    term: int
    key: Key
    value: Value | None
    expected: Value | None


class Step(NamedTuple):
    """What an input led to: the next state, encoded messages by receiver, what clients are told."""

    after: int
    sends: tuple[tuple[str, bytes], ...]
    answered: tuple[Written, ...]


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode
COMMUTES = (RowsStored, ZoneReady, Heartbeat, HeartbeatAck, TransferProgress)
"""Not delivered: they change nothing but repetitions, leases, progress bars, and how early a change
of voters is committed."""


def encoded(sends: Iterable[tuple[str, object]]) -> tuple[tuple[str, bytes], ...]:
    """Messages as they travel; writes of the metastore as (key, value) pickled."""
    return tuple(
        (to, pickle.dumps(message) if to == METASTORE else _encode(message))
        for to, message in sends
        if not isinstance(message, COMMUTES)
    )


class Disk:
    """What an agent's process leaves behind.  Every turn is durable at its end."""

    def __init__(self) -> None:
        self.zones: dict[str, MemoryStorage] = {}
        self.incarnation = 0
        self.master_term = 0

    def open_zone(self, record: ZoneRecord) -> Storage:
        return self.zones.setdefault(record.uid, MemoryStorage())

    def keep_zone(self, record: ZoneRecord) -> bool:
        return True

    def kept_zones(self) -> list[ZoneRecord]:
        return []

    def remove_zone(self, uid: str) -> bool:
        self.zones.pop(uid, None)
        return True

    def raise_master_term(self, term: int, word: str) -> None:
        self.master_term = term


class Agent:
    """One process of one agent over its disk."""

    def __init__(self, name: str, disk: Disk) -> None:
        disk.incarnation += 1
        self.name = name
        self.disk = disk
        self.now_ms = START_MS
        self.core = AgentCore(self.hello(), disk, SETTINGS, self.now())
        self.core.leases = Granted(SETTINGS, disk.incarnation, 0)

    def hello(self) -> Hello:
        """How it greets."""
        disk = self.disk
        return Hello(
            FORMAT_VERSION, "agent", "all", self.name, f"s-{self.name}", disk.incarnation,
            disk.master_term, host=self.name, peer_port=1, client_host=self.name,
        )  # fmt: skip

    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    @property
    def replicas(self) -> Replicas | None:
        return self.core.zones.get(UID)

    @property
    def serving(self) -> Primary | None:
        """The role that would take a write."""
        role = self.replicas.roles.get(0) if self.replicas is not None else None
        if role is None or role.stage is not Stage.SERVING or role.frozen:
            return None
        return role

    def write(self, op: int) -> None:
        """A client's SET of the one key."""
        role, replicas = self.serving, self.replicas
        assert role is not None
        assert replicas is not None
        counter = role.write(((KEY, b"%d" % op, 0),))
        replicas.commands_wrote(role)
        role.wait(Waiter((KEY,), Written(op, role.term, counter), self.now_ms))

    def end_turn(self) -> tuple[list[tuple[str, object]], list[Written]]:
        """Flush until nothing is left to do; every turn is synced at once."""
        sends: list[tuple[str, object]] = []
        answered: list[Written] = []
        while True:
            flushed = self.core.flush(self.now())
            sends += flushed.sends
            for uid, turn in flushed.turns:
                sends += self.core.synced(uid, turn, self.now())
            if self.replicas is not None:
                finished = self.replicas.take_finished()
                answered += [w.cargo for w in finished.answered if isinstance(w.cargo, Written)]
            if not flushed.sends and not flushed.turns:
                self.core.check()
                return sends, answered


def _is_known(part: PartitionState, nodes: Nodes) -> bool:
    """Voters have a row as soon as it is written: more is needed only when the metastore is lost,
    and commits come in more orders so."""
    return True


class MasterAtWork:
    """The master's process."""

    def __init__(self, term: int, objects: dict[Key, Value]) -> None:
        self.now_ms = START_MS
        self.term = term
        self.known = dict(objects)  # stands for the revisions: no object is ever the same again
        self.master = Master(term, SETTINGS, self.now())
        self.master.load(objects, self.now())

    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def end_turn(self) -> list[tuple[str, object]]:
        """Writes go to the metastore like messages."""
        outputs = self.master.take_outputs()
        writes = [
            (METASTORE, Write(self.term, key, value, self.known.get(key)))
            for key, value in outputs.writes
        ]
        return [*writes, *outputs.sends]

    def settled(self, key: Key, value: Value | None, ours: bool) -> None:
        """A write was answered: `value` is stored now, as we wanted it or as another did."""
        if value is None:
            self.known.pop(key, None)
        else:
            self.known[key] = value
        (self.master.written if ours else self.master.reloaded)(key, value, self.now())


def _weak_values(
    values: WeakValueDictionary[Any, Any],
) -> tuple[type[WeakValueDictionary[Any, Any]], tuple[Any, ...]]:
    """How to pickle one: what it holds is reached from elsewhere too, or is gone after loading."""
    return WeakValueDictionary, (dict(values),)


copyreg.pickle(WeakValueDictionary, _weak_values)


class Processes:
    """All states of processes met so far, by number; inputs are applied to them once."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._images: list[bytes] = []
        self._steps: dict[tuple[int, object], Step] = {}

    def number(self, process: Agent | MasterAtWork) -> int:
        """The number of the state the process is in."""
        text = state_text(process)
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self._images)
            self._images.append(pickle.dumps(process, pickle.HIGHEST_PROTOCOL))
        return found

    def load(self, number: int) -> Agent | MasterAtWork:
        """A process in that state, to look at or to go on with."""
        process: Agent | MasterAtWork = pickle.loads(self._images[number])
        return process

    def __len__(self) -> int:
        return len(self._images)

    def apply(self, number: int, given: tuple[object, ...]) -> Step:
        """What this input does in this state."""
        key = tuple(msgspec.msgpack.encode(e) if isinstance(e, Hello) else e for e in given)
        step = self._steps.get((number, key))
        if step is None:
            step = self._steps[number, key] = self._compute(number, given)
        return step

    def _compute(self, number: int, given: tuple[object, ...]) -> Step:
        process = self.load(number)
        if isinstance(process, MasterAtWork):
            with changed(decide_partition, "is_known", _is_known):
                _feed_master(process, given)
                outputs = encoded(process.end_turn())  # what is heard is decided now
            return Step(self.number(process), outputs, ())
        process = _feed_agent(process, given)
        sends, answered = process.end_turn()
        return Step(self.number(process), encoded(sends), tuple(answered))


def _feed_agent(agent: Agent, given: tuple[object, ...]) -> Agent:
    match given:
        case ("message", str(source), bytes(data)):
            _hear(agent, source, decode(data))
        case ("greeted", Hello() as hello):
            if hello.role == "master":
                agent.core.master_up(hello)
            else:
                agent.core.peer_up(hello, agent.now())
        case ("write", int(op)):
            agent.write(op)
        case ("tick",):
            agent.now_ms += SETTINGS.retry_ms
            agent.core.tick(agent.now())
        case ("restart",):
            return Agent(agent.name, agent.disk)
        case _:
            raise AssertionError(f"no input of an agent: {given}")
    return agent


def _hear(agent: Agent, source: str, message: Message) -> None:
    if source != MASTER:
        agent.core.receive(source, message, agent.now())
    elif isinstance(message, FromMaster):
        agent.core.receive_from_master(message, agent.now())


def _feed_master(process: MasterAtWork, given: tuple[object, ...]) -> None:
    master, now = process.master, process.now()
    match given:
        case ("message", str(source), bytes(data)):
            master.receive(source, decode(data), now)
        case ("greeted", Hello() as hello):
            master.agent_connected(hello, now)
        case ("gone", str(node)):
            master.agent_disconnected(node, True, now)
        case ("answered", bytes(data), bytes(present)):
            write: Write = pickle.loads(data)
            value = pickle.loads(present)
            process.settled(write.key, value, value == write.value)
        case ("zone", int(replicas), ConsistencyMode() as mode):
            record = ZoneRecord(UID, UID, 1, replicas, scale_down_ms=10_000, mode=mode, reset_ms=0)
            master.set_zone(record, now)
        case ("heard", tuple(nodes)):
            process.now_ms += SETTINGS.retry_ms
            for node in nodes:
                master.receive(node, AgentReport(1), process.now())
            master.tick(process.now())
        case ("drain", str(node)):
            master.drain(node, True, now)
        case ("tick",):
            process.now_ms += SETTINGS.retry_ms
            master.tick(process.now())
        case _:
            raise AssertionError(f"no input of a master: {given}")
