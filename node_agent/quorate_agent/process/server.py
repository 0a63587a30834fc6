"""The agent process: sockets, clock and threads around the core's `AgentCore`."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from quorate.facts.addresses import join_address
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent import (
    AgentCore,
    MembersChanged,
    ZoneClosed,
    ZoneOpened,
)
from quorate.protocol.agent.masterships import (
    MastershipNotKept,
    is_obeyed_refusal,
    why_not_believed,
    why_not_obeyed,
)
from quorate.protocol.agent.turn import Turn
from quorate.protocol.messages.clients import Forward, Forwarded
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode, Refused
from quorate.protocol.messages.master import EventsTold, FromMaster, Greet, ZoneTable
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.replication import Append, HeartbeatAck
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.storage import Storage, ZoneRefused
from quorate.wire.frames import encode_to_send
from quorate_agent.clients.addresses import client_addresses
from quorate_agent.clients.memory import budget, give_back
from quorate_agent.clients.ports import ClientPorts
from quorate_agent.commands.endpoint import ZoneEndpoint
from quorate_agent.commands.large_commands import LargeCommands, is_clear
from quorate_agent.commands.pipeline.alike import ENDS_AGENT
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.folder.folder_writes import FolderWrites
from quorate_agent.machine.clock import Clock
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.machine.memory_limit import memory_limit
from quorate_agent.metrics import AgentMetrics
from quorate_agent.process.farewell import leave_in_time
from quorate_agent.process.last_word import leave_word
from quorate_agent.process.paced.pace import Portion
from quorate_agent.process.paced.questions import PacedQuestions
from quorate_agent.process.peers import Peers
from quorate_agent.process.probes import Probes
from quorate_agent.process.sends import Sends
from quorate_agent.process.settings import AgentSettings
from quorate_agent.process.tools import answer_tool
from quorate_agent.process.turn_end import TurnEnd
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.held_appends import HeldAppends
from quorate_agent.zones.opening import ZoneOpening
from quorate_agent.zones.removals import ZoneRemovals
from quorate_agent.zones.runtime import Engine, ZoneRuntime
from quorate_agent.zones.stored_zones import LessThanSynced
from quorate_agent.zones.sync_record import SyncRecord
from quorate_link import BaseHandler, Endpoint, Link, LinkSettings, RoleKeys
from quorate_link.garbage import Garbage

_log = logging.getLogger("quorate.agent")

TICK_S = 0.05
"""Half of the shortest time after which the core repeats anything (ProtocolSettings)."""

PARKED_TICK_S = 0.01
"""The tick while clients wait for something that no message announces: it bounds their delay."""

MEASURE_S = 1.0
"""How often the disk and the processor are looked at."""

SYNC_THREADS = 32
"""For all zones together, started on demand: more syncs than a disk does at a time."""

LOOK_UP_S = 1.0

_OF_CLIENTS = (Forward, Forwarded)
_DISK_ERRORS = (DatabaseRefused, StorageBroken)
"""Their text names the file and the way out; a traceback would add nothing."""


class Agent(BaseHandler):
    """One agent process.  `restart` is set when the folder must be set aside and the agent started
    anew."""

    def __init__(
        self,
        settings: AgentSettings,
        folder: DataFolder,
        stored: dict[str, RocksStorage],
        protocol: ProtocolSettings,
        descriptors: Descriptors,
        keys: RoleKeys,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.folder = folder
        self._clock, self._now = clock, clock.now
        self._descriptors = descriptors
        offset = settings.external_port_offset
        self._ports = ClientPorts(settings.client_host, settings.client_port_base, offset)
        own = settings.client_ports is None
        self._opening = ZoneOpening(settings.name, folder, descriptors, self._ports, chooses=own)
        self._threads = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="storage")
        self.metrics = AgentMetrics()
        self.peer_port = 0
        self._process = secrets.token_hex(8)
        links = LinkSettings(links_max=descriptors.links, strangers_max=descriptors.strangers)
        self.links = Endpoint(self._hello, self, keys, links, self._accept)
        self.stopped = asyncio.Event()
        self.failure = ""
        self._is_closing = False
        self.restart = False
        # The zones of the folder are open already, before a master names them.
        self._engines: dict[str, Engine] = {**stored}
        self._sync_record = SyncRecord(folder, self._engines, self._fail)
        self._runtimes: dict[str, ZoneRuntime] = {}
        self._peers = Peers(settings.name, self.links)
        self._sends = Sends(self._peers)
        self._master: Link | None = None
        self._uninformed: set[str] = set()
        """Zones whose rows the master of this link has not sent yet."""
        self._folder_writes = FolderWrites(settings.name, folder)
        self._removals = ZoneRemovals(
            folder,
            self._folder_writes,
            self._threads,
            self._zone_closed,
            self._zone_gone,
            self._background_ended,
        )
        self._loop = asyncio.get_running_loop()
        self._turn = TurnEnd(self._loop.call_soon, self._end_turn).ask
        self._background: set[asyncio.Task[None]] = set()
        self._garbage = Garbage(clock.passed_s, clock.cpu_s, jitter=random.random())
        self._protocol = protocol
        self._memory = budget(settings.client_memory_share, *memory_limit())
        self._held: HeldAppends[Link] = HeldAppends()
        self._paced = PacedQuestions(self._answer_tool, self._loop.call_later, clock.passed_s)
        self.core: AgentCore

    # --- life ------------------------------------------------------------------------------------

    async def start(self, probes: Probes, admin_port: int) -> None:
        """Listen, and take part once a master has registered us.

        `admin_port`: where `probes` are answered."""
        settings = self.settings
        leave_word(self._process)
        self._loop.set_exception_handler(self._unhandled)
        believed = settings.believe_term
        self.core = AgentCore(self._hello(), self, self._protocol, self._now(), believed)
        self.metrics.observe(
            self.core.zones.values,
            self._engines,
            lambda: self._master is not None,
            self.links.counters,
            self.folder.disk,
            self._memory,
        )
        self.peer_port = await self.links.listen(settings.peer_host, settings.peer_port)
        self.folder.write_address(settings.peer_host, self.peer_port, admin_port)
        if not await self._ports.look_up():
            self._spawn(self._look_up_again())
        self._spawn(self._keep_ticking())
        probes.listens(lambda: self.core)
        where = join_address(settings.peer_host, self.peer_port)
        _log.info("agent %s listens on %s", settings.name, where)

    async def leave(self) -> None:
        """Hand primaries over (bounded), tell clients where they are now, then stop."""
        try:
            self.core.leave(self._now())
            self._turn()
            zones, has_master = self.core.zones, lambda: self._master is not None
            grace_s, linger_s = self.settings.grace_s, self.settings.linger_s
            await leave_in_time(zones, self._runtimes, grace_s, has_master, linger_s)
        except Exception as error:  # the process must end all the same
            self._step_failed("leaving", error)
        self.stopped.set()

    async def close(self) -> None:
        """Make durable what was written, end every connection, release the folder."""
        self._paced.close()
        for task in self._background:
            task.cancel()
        deadline = self._loop.time() + 2
        while not all(r.is_durable for r in self._runtimes.values()) and not self.failure:
            if self._loop.time() > deadline:
                break
            await asyncio.sleep(0.01)
        endpoints = [runtime.endpoint for runtime in self._runtimes.values()]
        if at_once := bool(self.failure):  # what we hold may be wrong: send none of it
            await self.links.close(at_once=True)
        await asyncio.gather(*[endpoint.close(at_once=at_once) for endpoint in endpoints])
        await self.links.close()
        self._is_closing = True  # no turn is written into a closed database
        await asyncio.gather(*[runtime.close() for runtime in self._runtimes.values()])
        await self._removals.finish()
        for engine in self._engines.values():
            engine.close()  # those of zones that no master has named
        self._sync_record.save_last()
        self.folder.close()

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background_ended)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            self._fail(str(error) if isinstance(error, _DISK_ERRORS) else f"{error!r}")

    def _fail(self, why: str) -> None:
        """Stop and send nothing more: what we hold is not trusted now; a new process recovers."""
        self.failure = self.failure or why
        _log.error("agent %s stops: %s", self.settings.name, why)
        self.stopped.set()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Stop the agent on an error that concerns all of it: a broken database, a violated
        invariant, no memory.

        Otherwise it would end only the connection whose message or command met it."""
        error = context.get("exception")
        if not isinstance(error, _DISK_ERRORS):
            loop.default_exception_handler(context)
        if isinstance(error, ENDS_AGENT):
            self._fail(str(error) or type(error).__name__)

    # --- the core's durable state (AgentStore) ---------------------------------------------------

    def open_zone(self, record: ZoneRecord) -> Storage:
        """Open the storage of one zone; ZoneRefused."""
        uid = record.uid
        if uid in self._removals:
            raise ZoneRefused(f"zone {record.name}: it is being deleted here")
        try:
            engine = self._engines[uid] = self._opening.open(record, self._engines.get(uid))
        except LessThanSynced as error:  # at its start there was no room to look
            self._set_aside(str(error))
            raise ZoneRefused(str(error)) from error
        return engine

    def keep_zone(self, record: ZoneRecord) -> bool:
        """Remember a zone that was declared anew or whose port here changed; return whether there
        was room."""
        return self._folder_writes.keep_zone(record)

    def kept_zones(self) -> list[ZoneRecord]:
        """Return the zones whose data is here."""
        return self.folder.kept_zones()

    def remove_zone(self, uid: str) -> bool:
        """Begin to delete a zone's data, after ending its clients; return whether it is gone."""
        self._uninformed.discard(uid)
        runtime, engine = self._runtimes.pop(uid, None), self._engines.pop(uid, None)
        return self._removals.begin(uid, runtime, engine)

    def _zone_closed(self, uid: str) -> None:
        """Let refused zones use the room of a zone that is closed."""
        if not self.stopped.is_set():
            self._opening.closed(uid)
            self.core.try_refused_zones()
            self._turn()

    def _zone_gone(self, uid: str) -> None:
        """Have the master told that a zone's files are deleted; else it asks again."""
        if not self.stopped.is_set():
            self.core.zone_removed(uid)
            self._turn()

    async def _look_up_again(self) -> None:
        found = False
        while not found:
            await asyncio.sleep(LOOK_UP_S)
            found = await self._ports.look_up()
        self.core.try_refused_zones()
        self._turn()

    def raise_master_term(self, term: int, word: str) -> None:
        """Remember the highest mastership obeyed; MastershipNotKept."""
        self._folder_writes.raise_master_term(term, word)

    # --- links -----------------------------------------------------------------------------------

    def _hello(self) -> Hello:
        settings = self.settings
        return Hello(
            format_version=FORMAT_VERSION,
            role="agent",
            cluster=settings.cluster,
            node=settings.name,
            store=self.folder.store,
            incarnation=self.folder.incarnation,
            master_term=self.folder.master_term,
            host=settings.told_peer_host,
            peer_port=settings.told_peer_port or self.peer_port,
            client_host=settings.told_client_host,
            failure_domain=settings.failure_domain,
            weight=settings.weight,
            process=self._process,
            master_word=self.folder.master_word,
            client_ports=settings.client_ports,
            external_host=settings.told_external_host if settings.external_port_offset else None,
            attributes=settings.attributes,
            storage_profiles=settings.storage_profiles,
        )

    def _accept(self, hello: Hello) -> Refused | None:
        core = self.core
        if hello.role != "master":
            return None
        if why := why_not_obeyed(core.master_term, core.master_word, hello):
            return Refused(f"agent {core.node}: {why}", RefusalCode.STALE_MASTER, core.master_term)
        if why := why_not_believed(core.heard_term, hello.master_term):
            return Refused(f"agent {core.node}: {why}", RefusalCode.TERM_AHEAD)
        why = self._folder_writes.why_not_kept(hello.master_term, hello.master_word)
        return Refused(why, RefusalCode.NOT_KEPT) if why else None

    def on_up(self, link: Link, hello: Hello) -> None:
        if hello.role == "agent":
            self._peers.up(link)
            if not self.core.peer_up(hello, self._now()):
                self._peers.refuse_ended(link, hello)
        elif hello.role == "master" and self.core.master_up(hello):
            self._master = link
            self._uninformed = set(self._runtimes)
        self._turn()

    def on_down(self, link: Link, refused: Refused | None) -> None:
        if link is self._master:
            self._master = None
            for runtime in self._runtimes.values():
                runtime.endpoint.overview.events.master_lost()
        hello = link.peer_hello
        if hello is not None and refused is not None:
            self._refused(hello, refused)
        if hello is not None and hello.role == "agent":
            if link.dialed or self.core.hears(hello):  # else its successor's are not lost
                for runtime in self._runtimes.values():
                    runtime.endpoint.forwards.peer_down(hello.node)
            self._held.link_down(link)
            self._sends.link_down(link)
        self._paced.link_down(link)
        self._table_changed()

    def _refused(self, hello: Hello, refused: Refused) -> None:
        self.core.refused(hello, refused)
        is_obeyed = is_obeyed_refusal(self.core.master_term, self.core.master_word, hello)
        if is_obeyed and refused.code == RefusalCode.OLDER_IMAGE:
            self._set_aside(refused.reason)

    def on_gone(self, link: Link) -> None:
        if link.peer_hello is not None:
            for runtime in self._runtimes.values():
                runtime.endpoint.overview.peer_gone(link.peer_hello.node)

    def on_message(self, link: Link, message: Message) -> None:
        hello = link.peer_hello
        if hello is None or self.failure:
            return
        if hello.role == "agent":
            # A process that was replaced, or one over a copied folder, must neither get this
            # node's leases nor speak for it.
            if self.core.hears(hello):
                self._receive(link, hello.node, message)
        elif isinstance(message, FromMaster):
            self._obey(link, hello, message)
        elif not self._paced.take(link, message):
            self._answer_tool(link, message)
        self._turn()

    def _answer_tool(self, link: Link, message: Message, portion: Portion | None = None) -> int:
        """Answer a tool; return how many bytes that took."""
        zones, debug = self.core.zones.values(), self.settings.debug_commands
        name, times = self.settings.name, self.metrics.client_times
        answer = answer_tool(message, name, zones, debug, self._now(), portion, times)
        if answer is None:
            return 0
        frame = encode_to_send(answer)
        link.send_frame(type(answer), frame)
        return len(frame)

    def _obey(self, link: Link, hello: Hello, message: FromMaster) -> None:
        try:
            is_obeyed = self.core.receive_from_master(message, self._now())
        except MastershipNotKept as error:
            link.close(str(error), RefusalCode.NOT_KEPT)
            return
        if not is_obeyed:
            told, known = hello.master_term, self.core.master_term
            _log.warning("a master of term %d is refused: term %d leads", told, known)
            link.close(
                f"agent {self.core.node}: master term {told} is over",
                RefusalCode.STALE_MASTER,
                known,
            )
            return
        self._master = link
        self._table_changed()
        if isinstance(message, ZoneTable):
            self._table_came(message)

    def _table_came(self, message: ZoneTable) -> None:
        uid = message.zone.uid
        runtime = self._runtimes.get(uid)
        if runtime is None:
            return
        runtime.endpoint.hand_overs.rows_came(message.rows, self._clock.boot_ms())
        if uid in self._uninformed:
            self._uninformed.discard(uid)
            runtime.endpoint.overview.events.master_found()

    def _receive(self, link: Link, node: str, message: Message) -> None:
        if not isinstance(message, _OF_CLIENTS):
            held = self._held
            if held and isinstance(message, Append):
                passes = held.hold(link, message)
                if passes is None:
                    return
                message = passes
            at = self._now()
            if isinstance(message, HeartbeatAck) and self.core.leases.sent_heartbeat(
                node, message.sent_ms
            ):
                self.metrics.heartbeat_seconds.observe((at.boot_ms - message.sent_ms) / 1000)
            self.core.receive(node, message, at)
            return
        runtime = self._runtimes.get(message.zone)
        if runtime is None:
            return
        if isinstance(message, Forward):
            runtime.endpoint.forwards.perform(node, message)
        else:
            runtime.endpoint.forwards.take_reply(node, message)

    def _set_aside(self, reason: str) -> None:
        _log.error("%s", reason)
        self.restart = True
        self.failure = reason
        self.stopped.set()

    # --- the turn --------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        if self.failure or self._is_closing:
            return
        self.links.gather()
        try:
            self._flush()
            if not self.failure:
                self.links.flush()
        except Exception as error:
            self._step_failed("the turn", error)

    def _step_failed(self, what: str, error: Exception) -> None:
        if isinstance(error, _DISK_ERRORS):
            self._fail(str(error))
            return
        _log.error("%s failed", what, exc_info=error)
        self._fail(f"{type(error).__name__}: {error}")

    def _flush(self) -> None:
        flushed = self.core.flush(self._now())
        for event in flushed.events:
            match event:
                case ZoneOpened():
                    self._open(event.record)
                case EventsTold():
                    for each in self._runtimes.values():
                        each.endpoint.overview.events.tell(event.events)
                case ZoneClosed():  # its clients were ended with its storage
                    self._garbage.visit_all()
                case MembersChanged():
                    self._peers.dial(self.core.members)
                    self._table_changed()
                case Greet():
                    self._peers.greet(event.host, event.peer_port)
        if self.core.has_to_open(self._now()):
            self._turn()
        self._send(flushed.sends)
        settled: set[str] = set()
        for uid, turn in flushed.turns:
            runtime = self._runtimes.get(uid)
            if runtime is not None and runtime.take(turn):
                settled.add(uid)
        for uid, zone in list(self.core.awake.items()):
            if uid not in settled and uid in self._runtimes and zone.has_work:
                self._runtimes[uid].endpoint.settle()
        if flushed.going_on or self._held:
            for link, message in self._held.turn_ended(flushed.going_on):
                hello = link.peer_hello  # it may have been replaced meanwhile
                if hello is not None and self.core.hears(hello):
                    self.core.receive(hello.node, message, self._now())
                self._turn()

    def _synced(self, uid: str, turn: Turn) -> None:
        if self.failure or self._is_closing:
            return
        try:
            self._say_durable(uid, turn)
        except Exception as error:  # the loop calls this, and would only log the error
            self._step_failed("the turn", error)

    def _say_durable(self, uid: str, turn: Turn) -> None:
        self.metrics.durable_turns += 1
        self._send(self.core.synced(uid, turn, self._now()))
        runtime = self._runtimes.get(uid)
        if runtime is None:
            return
        replicas = runtime.replicas
        runtime.endpoint.settle()
        if replicas.wrote or replicas.out.at_once or replicas.out.after_sync or replicas.adopting:
            self._turn()

    def _send(self, sends: list[tuple[str, Message]]) -> None:
        if not self.failure:
            self._sends.send(sends, self._master)

    async def _keep_ticking(self) -> None:
        measured = late_s = 0.0
        while True:
            if self._loop.time() - measured >= MEASURE_S:
                measured = self._loop.time()
                self._garbage.look(late_s)
                late_s = 0.0
                for runtime in self._runtimes.values():
                    runtime.look(measured)
                self._sync_record.note()
                if self._memory.has_to_give_back():
                    self._loop.run_in_executor(None, give_back)
            pause_s = PARKED_TICK_S if self._has_waiting() else TICK_S
            due = self._clock.passed_s() + pause_s
            await asyncio.sleep(pause_s)
            lag_s = max(0.0, self._clock.passed_s() - due)
            self.metrics.loop_lag_seconds.observe(lag_s)
            late_s += lag_s
            self._memory.keep()
            self.core.tick(self._now())
            self._turn()

    def _has_waiting(self) -> bool:
        """Return whether the passing of time alone may finish something for a client."""
        runtimes = map(self._runtimes.get, self.core.awake)
        return any(runtime is not None and runtime.endpoint.has_waiting for runtime in runtimes)

    # --- zones and members -----------------------------------------------------------------------

    def _open(self, record: ZoneRecord) -> None:
        replicas = self.core.zones.get(record.uid)
        engine = self._engines.get(record.uid)
        if replicas is None or engine is None:
            return
        endpoint = ZoneEndpoint(
            replicas,
            node=self.settings.name,
            turn=self._turn,
            nodes=lambda external: client_addresses(
                self.core.zones[record.uid].record, self.core.members, external
            ),
            is_up=self._peers.is_up,
            metrics=self.metrics,
            why_full=lambda: engine.full_reason,
            process=self._process,
            send=lambda node, message: self._send([(node, message)]),
            clock=self._clock,
            memory=self._memory,
            large=LargeCommands(
                lambda: is_clear(self._held.holds(record.uid), self.links.links, self.core.members)
            ),
        )
        self._runtimes[record.uid] = ZoneRuntime(
            replicas, engine, endpoint, self._synced, self._turn, self._fail, self._threads
        )
        self._spawn(self._listen(record, endpoint))

    async def _listen(self, record: ZoneRecord, endpoint: ZoneEndpoint) -> None:
        host, sockets = self.settings.told_client_host, self._opening.take_sockets(record.uid)
        port = await endpoint.listen(host, sockets, self._descriptors)
        _log.info("zone %s: clients on %s", record.name, join_address(host, port))
        self.core.zone_ready(record.uid, port, port + self.settings.external_port_offset)
        endpoint.table_changed()
        self._turn()

    def _table_changed(self) -> None:
        for runtime in self._runtimes.values():
            runtime.endpoint.table_changed()
