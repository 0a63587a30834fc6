"""A runner that leads, its metastore in memory, and agents that do as agents without trouble do."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.events import Event
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, Refused
from quorate.protocol.messages.master import (
    Activated,
    AgentReport,
    AskInventory,
    CopyReport,
    Inventory,
    MasterPing,
    Members,
    RowsStored,
    ZoneGone,
    ZoneReady,
    ZoneTable,
)
from quorate.protocol.messages.message import Message
from quorate.protocol.metastore import Key, Seen, ShardKey, Value
from quorate.protocol.settings import DEFAULTS
from quorate_link import BaseHandler, ClusterSecret, Endpoint, Link
from quorate_loopback.sides import SECRET
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_operator.process.mandate import Always, Mandate
from quorate_operator.process.metrics import Metrics

ZONE = ZoneRecord("uid-1", "sessions", 128, 3)
NAMES = ("agent-1", "agent-2", "agent-3")


class ScriptedAgent(BaseHandler):
    """Says what an agent without trouble says; keeps what the master told it."""

    def __init__(self, name: str, check: Callable[[ZoneTable], None], store: str = "") -> None:
        self.hello = Hello(
            FORMAT_VERSION, "agent", "main", name, store or f"store-of-{name}", 1, 0, "127.0.0.1"
        )
        self.told: list[Message] = []
        self.copies: tuple[CopyReport, ...] = ()
        self.kept: tuple[str, ...] = ()
        """The zones of which it says that it has anything stored."""
        self.members: tuple[str, ...] = ()
        self.rows: dict[int, PartitionRow] = {}
        self.zone: ZoneRecord | None = None
        """The zone that it has stored: it tells it with its rows, where it is asked for them."""
        self.older: tuple[ZoneRecord, ...] = ()
        """Zones that were deleted while it was away: it tells them with the same rows."""
        self.refused: Refused | None = None
        self.address = ""
        self._check = check
        self._endpoint = Endpoint(lambda: self.hello, self, SECRET.keys())

    async def listen(self, port: int = 0) -> None:
        port = await self._endpoint.listen("127.0.0.1", port)
        self.hello = msgspec.structs.replace(self.hello, peer_port=port, client_host="127.0.0.1")
        self.address = f"127.0.0.1:{port}"

    async def close(self) -> None:
        await self._endpoint.close()

    @property
    def links(self) -> list[Link]:
        return list(self._endpoint.links)

    async def die(self) -> None:
        """End as a killed process does: no goodbye, the port refuses."""
        for link in self._endpoint.links:
            link.abort("killed")
        await self._endpoint.close()

    def on_down(self, link: Link, refused: Refused | None) -> None:
        self.refused = refused or self.refused

    def on_message(self, link: Link, message: Message) -> None:
        self.told.append(message)
        match message:
            case Members(nodes=nodes):
                self.members = tuple(node.name for node in nodes)
            case AskInventory(rows=True, zone=uid) if self.zone is not None:
                rows = tuple(_report(row) for row in self.rows.values())
                zones = [zone for zone in (self.zone, *self.older) if uid in ("", zone.uid)]
                for zone in zones:
                    link.send(Inventory(zone.uid, rows, False, zone, True))
                link.send(Inventory("", (), kept=tuple([zone.uid for zone in zones])))
            case AskInventory():
                if self.copies:
                    link.send(Inventory(ZONE.uid, self.copies, last=False))
                link.send(Inventory("", (), kept=self.kept))
            case MasterPing(sequence=sequence):
                link.send(AgentReport(sequence))
            case ZoneTable(zone=zone, rows=rows):
                self._check(message)
                for row in rows:
                    self.rows[row.partition] = row
                    if row.primary is not None and row.primary.node == self.hello.node:
                        link.send(Activated(zone.uid, row.partition, row.term, 0))
                stored = tuple((row.partition, row.version) for row in rows)
                link.send(RowsStored(zone.uid, stored))
                link.send(ZoneReady(zone.uid, 7000))
            case ZoneGone(zone=uid):
                self.rows.clear()
                link.send(RowsStored(uid, ()))
            case _:
                pass


class World:
    """One metastore, agents and runners on one loop."""

    def __init__(self) -> None:
        self.metastore = MemoryMetastore()
        self.agents: dict[str, ScriptedAgent] = {}
        self.runners: list[Runner] = []
        self.published_early: list[str] = []

    async def add_agent(self, name: str, store: str = "", port: int = 0) -> ScriptedAgent:
        agent = ScriptedAgent(name, self.is_stored, store)
        await agent.listen(port)
        self.agents[name] = agent
        return agent

    async def lead(
        self,
        mandate: Mandate | None = None,
        metastore: MemoryMetastore | None = None,
        on_failed: Callable[[str], None] = lambda why: None,
        on_overtaken: Callable[[str], None] = lambda why: None,
        on_event: Callable[[Event], None] = lambda event: None,
        changes: Callable[[], AsyncIterator[Seen]] | None = None,
        metrics: Metrics | None = None,
    ) -> Runner:
        if metastore is not None:
            self.metastore = metastore
        runner = Runner(
            "main",
            self.metastore,
            mandate=mandate or Always(),
            settings=DEFAULTS,
            metrics=metrics or Metrics(),
            secret=known_secret,
            on_event=on_event,
            on_failed=on_failed,
            on_overtaken=on_overtaken,
            changes=changes,
        )
        self.runners.append(runner)
        runner.set_addresses([agent.address for agent in self.agents.values()])
        runner.set_zone(ZONE)
        runner.start()
        return runner

    def stored(self) -> dict[Key, Value]:
        return {key: each.value for key, each in self.metastore.stored.items()}

    def stored_rows(self) -> dict[int, PartitionRow]:
        shards = [each for key, each in self.stored().items() if isinstance(key, ShardKey)]
        return {row.partition: row for rows in shards if isinstance(rows, tuple) for row in rows}

    def is_stored(self, table: ZoneTable) -> None:
        stored = self.stored_rows()
        for row in table.rows:
            known = stored.get(row.partition)
            if known is None or known.version < row.version:
                self.published_early.append(f"{row} while the metastore holds {known}")

    async def close(self) -> None:
        for runner in self.runners:
            await runner.stop()
        for agent in self.agents.values():
            await agent.close()


def _report(row: PartitionRow) -> CopyReport:
    return CopyReport(
        row.partition, row.version, None, "", row.term, 0, 0, True, promised=row.term, row=row
    )


async def known_secret() -> ClusterSecret:
    return SECRET


@asynccontextmanager
async def world_of_agents() -> AsyncIterator[World]:
    world = World()
    for name in NAMES:
        await world.add_agent(name)
    yield world
    await world.close()
    assert world.published_early == []


def is_available(runner: Runner) -> bool:
    zones = runner.status().zones
    return bool(zones) and zones[0].available == ZONE.partitions


def state_of(runner: Runner, node: str) -> str:
    return next((each.state for each in runner.status().nodes if each.name == node), "unknown")
