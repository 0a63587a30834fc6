"""What clients do: commands, where they send them, what they are told; the history of it all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from quorate.facts.errors import InvariantError
from quorate.protocol.storage import Operation
from quorate_sim.world import MS

if TYPE_CHECKING:
    from quorate_sim.agent_process import AgentProcess
    from quorate_sim.cluster import Cluster

PATIENCE_MS = 4000
"""How long a client waits for one answer before it counts the outcome as unknown."""

ONCE = -2
"""The client number of a command that is not sent again by itself."""


class Op:
    """One command of one client, from its (last) sending to its answer.

    `outcome`: ok, or unknown (it may have been applied, or yet be).  A command that was certainly
    not applied is sent again, or given up and leaves the history.
    """

    __slots__ = (
        "answered_us",
        "answers",
        "attempt",
        "client",
        "end_us",
        "key",
        "kind",
        "number",
        "outcome",
        "result",
        "start_us",
        "value",
        "wrote",
        "zone",
    )

    def __init__(
        self, number: int, client: int, zone: str, kind: str, key: bytes, value: bytes
    ) -> None:
        self.number = number
        self.client = client
        self.zone = zone
        self.kind = kind
        self.key = key
        self.value = value
        self.start_us = 0
        self.answered_us = 0
        self.end_us: int | None = None
        self.outcome = ""
        self.result: bytes | None = None
        self.answers = 0
        self.attempt = 0
        self.wrote: tuple[int, int, int] | None = None
        """Partition, term and counter of what it wrote, or of the row that it was shown."""

    def apply(
        self, value: bytes | None, wall_ms: int
    ) -> tuple[tuple[Operation, ...], bytes | None]:
        """The rows this command writes over a present value, and its answer."""
        match self.kind:
            case "get":
                return (), value
            case "set":
                return ((self.key, self.value, 0),), b"OK"
            case "del":
                if value is None:
                    return (), b"0"
                return ((self.key, None, 0),), b"1"
            case "expiring":  # not in the history: when it goes depends on each primary's clock
                return ((self.key, self.value, wall_ms + 200 + self.number % 700),), b"OK"
            case "incr":
                after = b"%d" % (int(value or b"0") + 1)
                return ((self.key, after, 0),), after
            case "flush":
                return ((None, None, 0),), b"OK"
            case other:
                raise ValueError(other)

    def __repr__(self) -> str:
        value = self.value[:12] if self.kind == "set" else b""
        end = "" if self.end_us is None else f"{self.end_us / MS:.3f}"
        said = f"{self.outcome} {self.result[:12] if self.result is not None else None!r}"
        return (
            f"#{self.number} c{self.client} {self.kind} {self.key!r} {value!r} "
            f"[{self.start_us / MS:.3f}..{end}] {said}"
        )


class Clients:
    """Clients that each send one command after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.history: list[Op] = []
        self.given_up = 0
        self.stopped = False
        self._open: dict[int, tuple[Op, AgentProcess]] = {}
        self._unheard: dict[int, Op] = {}
        self._number = 0

    @property
    def open(self) -> list[tuple[Op, AgentProcess]]:
        """Commands an agent has taken and not answered."""
        return list(self._open.values())

    @property
    def in_flight(self) -> list[Op]:
        """Commands of which the clients have no answer yet."""
        taken = [*(op for op, _ in self._open.values()), *self._unheard.values()]
        return [op for op in taken if op.outcome == "open"]

    def start(self) -> None:
        """All clients begin."""
        for client in range(self.cluster.swarm.clients):
            self.world.after(client * 7 * MS, partial(self._next, client))

    def _next(self, client: int) -> None:
        if self.stopped:
            return
        r = self.world.random
        swarm = self.cluster.swarm
        number = r.randrange(swarm.keys)
        if number % 4 == 3:
            kind, key = r.choice(("incr", "incr", "get", "del")), b"n%d" % number
        else:
            kind, key = r.choice(("set", "set", "get", "get", "get", "del")), b"s%d" % number
        if number % 8 == 5:
            kind, key = "expiring", b"e%d" % number
        if r.random() < swarm.flushes:
            kind = "flush"
        if r.random() < swarm.bursts:
            self._burst()
        uids = list(self.cluster.zones)
        self.send(client, uids[0] if len(uids) == 1 else r.choice(uids), kind, key)

    def _burst(self) -> None:
        """Many writes at once, whoever answers them: one agent may get far ahead of the others."""
        r = self.world.random
        for _ in range(r.randrange(5, 60)):
            self.send(-1, "zone", "expiring", b"e%d" % r.randrange(20))

    def send(
        self, client: int, zone: str, kind: str, key: bytes, asked_for: int = PATIENCE_MS
    ) -> Op:
        """One new command."""
        self._number += 1
        value = b"v%d" % self._number + b"." * self.cluster.swarm.value_bytes
        op = Op(self._number, client, zone, kind, key, value)
        self._try(op, self.world.time_us + asked_for * MS)
        return op

    def send_to(self, agent: AgentProcess, kind: str, key: bytes, value: bytes = b"") -> Op:
        """One new command to this agent, now and only once; its outcome may be `elsewhere`."""
        self._number += 1
        op = Op(self._number, ONCE, "zone", kind, key, value)
        op.start_us = self.world.time_us
        op.outcome = "open"
        self._open[op.number] = (op, agent)
        agent.run(lambda: agent.command(op))
        return op

    def _try(self, op: Op, until_us: int) -> None:
        if self.world.time_us > until_us:
            self.given_up += 1
            op.outcome = "given up"
            self._pause(op)
            return
        op.start_us = self.world.time_us
        agent = self.cluster.choose_agent(op)
        if agent is None:
            self._again(op, until_us)
            return
        self._open[op.number] = (op, agent)
        op.outcome = "open"
        op.attempt += 1
        attempt = op.attempt

        def is_open() -> bool:
            return op.number in self._open and op.attempt == attempt

        def arrive() -> None:
            agent.run(lambda: agent.command(op) if is_open() else None)

        def impatient() -> None:
            if op.outcome == "open" and op.attempt == attempt:
                self._end(op, "unknown", None)

        self.world.after(50 + self.world.below(1950), arrive)
        self.world.after(PATIENCE_MS * MS, impatient)

    def _again(self, op: Op, until_us: int) -> None:
        pause = self.world.random.randrange(20, 200) * MS
        self.world.after(pause, lambda: self._try(op, until_us))

    def answer(self, agent: AgentProcess, op: Op, outcome: str, result: bytes | None) -> None:
        """An agent answers; the client hears of it a little later, or never."""
        op.answers += 1
        if op.answers > 1 and outcome != "elsewhere":
            raise InvariantError(f"I-10: {agent.label} answers again ({outcome}): {op}")
        if self._open.pop(op.number, None) is None:
            return
        if outcome == "ok":
            self.cluster.checks.answered(agent, op)
        if outcome in ("elsewhere", "refused"):
            op.answers = 0
            op.wrote = None
            if op.client == ONCE:
                op.outcome = outcome
            elif op.outcome == "open":
                op.outcome = "sent again"
                self._again(op, self.world.time_us + PATIENCE_MS // 2 * MS)
            return
        if self.world.chance(self.cluster.lost_answers):
            outcome = "unknown"

        self._unheard[op.number] = op

        def hear() -> None:
            del self._unheard[op.number]
            if op.outcome == "open":
                self._end(op, outcome, result)

        self.world.after(50 + self.world.below(1950), hear)

    def _end(self, op: Op, outcome: str, result: bytes | None) -> None:
        op.outcome = outcome
        op.result = result
        op.end_us = self.world.time_us if outcome == "ok" else None
        if self.world.tracing:
            self.world.trace(f"client {op.client}", str(op))
        if op.kind != "expiring" and (outcome == "ok" or op.kind != "get"):
            self.history.append(op)
        self._pause(op)

    def _pause(self, op: Op) -> None:
        if op.client >= 0:
            pause = self.world.random.choice((1, 5, 30, 100)) * MS
            self.world.after(pause, lambda: self._next(op.client))

    def process_died(self, agent: AgentProcess) -> None:
        """What it had taken and not answered is unknown."""
        for op, at in list(self._open.values()):
            if at is agent:
                del self._open[op.number]
                if op.outcome == "open":
                    self._end(op, "unknown", None)
