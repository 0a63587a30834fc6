"""Performs what the core's master decides: dials agents, passes the time, writes rows.

A write that was not confirmed is read again before anything is published.  Nothing is written or
published without the mandate.  It is checked each time, because a process may have been frozen
between any two lines.

    STARTING --term counted, metastore loaded--> LEADING
    LEADING --mandate lost, stop(), metastore holds what must not exist, defect--> STOPPED
    LEADING --agents know a later mastership--> STOPPED --numbers go on above it--> on_overtaken

After a defect (an unexpected exception) this master decides nothing more: its state may be half of
a step.  Its owner leads the cluster again in a new mastership, or ends the process.
"""

import asyncio
import logging
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)

import msgspec

from quorate.facts.errors import InvariantError
from quorate.facts.topology import NodeRecord, PodFacts
from quorate.facts.zone import ZoneRecord
from quorate.planning.absence.choose_leavers import ClusterLoad
from quorate.planning.absence.disruption import Disruption
from quorate.planning.steps.preview import Preview
from quorate.protocol.master.disruption import cluster_load
from quorate.protocol.master.master import Master
from quorate.protocol.messages.events import Event, Reason, ToldEvent
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, Refused
from quorate.protocol.metastore import DamagedRow, Key, Metastore, MetastoreUnavailable, Seen, Value
from quorate.protocol.recovery import Recovery, RecoveryAnswer
from quorate.protocol.settings import ProtocolSettings
from quorate.protocol.status import ClusterStatus, ZoneStatus
from quorate_link import ClusterSecret, Endpoint, SecretRefused
from quorate_operator.mastership.agent_handler import AgentHandler
from quorate_operator.mastership.agent_links import AgentLinks
from quorate_operator.mastership.agent_refusals import AgentRefusals, recovery_waits
from quorate_operator.mastership.awaited_writes import AwaitedWrites
from quorate_operator.mastership.dialing import Dialing
from quorate_operator.mastership.event_log import EventCounts, EventLog, states
from quorate_operator.mastership.guarded import ends_with_a_defect
from quorate_operator.mastership.refused_writes import MASTER_FAILED, Refusal, event_of
from quorate_operator.mastership.second_look import pauses_s
from quorate_operator.mastership.writer import RETRY_MAX_S, RETRY_S, Writer
from quorate_operator.process.clock import Clock
from quorate_operator.process.mandate import Mandate
from quorate_operator.process.metrics import Metrics

_log = logging.getLogger("quorate.runner")

WAY_OUT = "restore its newest state, or stop this master if another one leads"
STARTING = "starting"
LOOK_AT_DIALED_MS = 500


class Runner:
    """Leads one cluster.  All methods belong to the event loop's thread.

    `on_failed`: called once, with a sentence, if a lost mandate has ended it; its process must then
    end.  `on_defect`: the same if a defect has ended it; default: `on_failed`.  `on_overtaken`:
    called if an agent knows a later mastership, or another one with this number; the next one is
    counted above.
    """

    def __init__(
        self,
        cluster: str,
        metastore: Metastore,
        *,
        mandate: Mandate,
        settings: ProtocolSettings,
        metrics: Metrics,
        namespace: str = "",
        secret: Callable[[], Awaitable[ClusterSecret]],
        on_event: Callable[[Event], None] = lambda event: None,
        on_failed: Callable[[str], None] = lambda why: None,
        on_defect: Callable[[str], None] | None = None,
        on_overtaken: Callable[[str], None] = lambda why: None,
        way_out: Callable[[], str] = lambda: WAY_OUT,
        recovering: Callable[[], bool] = lambda: False,
        rebuilds: bool = False,
        changes: Callable[[], AsyncIterator[Seen]] | None = None,
    ) -> None:
        """`namespace`: of the cluster's object, on Kubernetes.  `secret`: returns the cluster's
        secret or raises SecretRefused.  `way_out`: what a user can do if the metastore is older
        than the agents.  `recovering`: whether the metastore was lost and agents are to tell zones
        and rows; asked once the metastore was read.  `rebuilds`: whether rows older than agents'
        are rebuilt.  `changes`: yields what is stored as it changes, whoever changes it."""
        self.cluster = f"{namespace}/{cluster}" if namespace else cluster
        """The cluster's name in texts for people; agents know it by the bare name."""
        self._name = cluster
        self._namespace = namespace
        self.problem = STARTING
        """Why the cluster is not led, as a sentence; empty while it is."""
        self.events = EventLog()
        self._counts = EventCounts(namespace, cluster, metrics)
        self._word = secrets.token_hex(8)
        self._way_out = way_out
        self._ask_recovering = recovering
        self._recovering = False
        self._rebuilds = rebuilds
        self._changes = changes
        self._mandate = mandate
        self._settings = settings
        self._metrics = metrics
        self._secret = secret
        self._on_event = on_event
        self._on_failed = on_failed
        self._on_defect = on_defect or on_failed
        self._on_overtaken = on_overtaken
        self._clock = Clock()
        self.master: Master | None = None
        """The deciding core; None until the metastore was read."""
        self._endpoint: Endpoint | None = None
        self._addresses: tuple[str, ...] = ()
        self._refusals = AgentRefusals(self.cluster)
        self._links = AgentLinks(self._refusals, 2 * settings.failure_detection_ms)
        self.dialing = Dialing(self.cluster, self._links.by_node)
        self._handler = AgentHandler(self, self._links, self._refusals, self.dialing, self._clock)
        self._dialing_looked_ms = 0
        self._zones: dict[str, ZoneRecord] = {}
        self._status: ClusterStatus | None = None  # as of the last step; None until asked for
        self._last_status = ClusterStatus(0, (), ())
        self.has_failed = False
        """Whether a defect has ended this master."""
        self.is_broken = False
        """Whether a broken invariant has ended this master, stored or decided."""
        self._writer = Writer(self, metastore, metrics)
        self._writes: set[asyncio.Task[None]] = set()
        self._awaited = AwaitedWrites(self.registration)
        self._looking: asyncio.Task[None] | None = None
        self._looked_ms = -(1 << 40)
        self._timer: asyncio.TimerHandle | None = None
        self._pump_scheduled = False
        self._stopped = False

    # --- for the owner ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to lead as soon as the metastore can be read."""
        self._perform(self._start())

    async def stop(self) -> None:
        """Stop: nothing is written or sent any more.  Idempotent."""
        self._end("stopped", hangs_up=False)
        tasks = list(self._writes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._endpoint is not None:
            await self._endpoint.close()

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Set the addresses to dial.  Agents whose address is gone are drained (dialing.py)."""
        self._addresses = tuple(addresses)
        if self._endpoint is None or self._stopped:
            return
        self._refusals.keep(addresses)
        self.dialing.declare(addresses, self._endpoint)

    def set_zone(self, record: ZoneRecord) -> None:
        """Have the zone led as `record` says, or deleted if it is `deleting`.  Idempotent."""
        self._zones[record.uid] = record
        known = self.known_zone(record.uid)
        if known is not None and record == msgspec.structs.replace(
            known,
            ports=record.ports,
            external_ports=record.external_ports,
            recovering=False,
            placed=record.placed and known.placed,
            port=record.port,
            data_nodes=record.data_nodes,
        ):
            return
        if self.master is not None:
            self.step(lambda master: master.set_zone(record, self._clock.now()))

    def set_external(
        self, hosts: Mapping[str, str], ports: Mapping[str, Mapping[str, int]]
    ) -> None:
        """Set where external clients reach agents: hosts by node, ports by zone uid and node."""
        if self.is_leading:
            self.step(lambda master: master.places.tell(hosts, ports))

    def is_zone_gone(self, uid: str) -> bool:
        """Return whether nothing of the zone is left where an agent is online."""
        return self.master is not None and self.master.is_zone_gone(uid)

    def forget_zone(self, uid: str) -> None:
        """Forget a zone whose object is gone."""
        self._zones.pop(uid, None)

    def known_zones(self) -> dict[str, ZoneRecord]:
        """Return the zones that the metastore holds, by uid; empty while not leading."""
        if self.master is None:
            return {}
        return {uid: zone.record for uid, zone in sorted(self.master.zones.items())}

    def known_zone(self, uid: str) -> ZoneRecord | None:
        """Return the zone as the metastore holds it, or is about to; None if there is none."""
        zone = self.master.zones.get(uid) if self.master is not None else None
        return zone.record if zone is not None else None

    def written_import(self, uid: str) -> str:
        """Return `importing` of the zone's record as the metastore holds it."""
        zone = self.master.zones.get(uid) if self.master is not None else None
        return zone.importing_written if zone is not None else ""

    async def drain(self, node: str, draining: bool) -> str:
        """Move everything off a node, or stop that; return "" once it is written, or why it is
        refused.

        Raises OutcomeUnknown if neither is known in time.
        """
        return self.ask_drain(node, draining) or await self._awaited.drained(node, draining)

    def ask_drain(self, node: str, draining: bool) -> str:
        """Do the same as `drain`, without waiting until it is written."""
        return self._ask(lambda master: master.drain(node, draining, self._clock.now()))

    async def forget_node(self, node: str) -> str:
        """Remove the registration of a node that holds nothing; return "" once that is written, or
        why it is refused.

        Raises OutcomeUnknown if neither is known in time.
        """
        if self.master is not None and node not in self.master.agents:
            return ""
        refused = self._ask(lambda master: master.forget(node, self._clock.now()))
        return refused or await self._awaited.removed(node)

    def zones_naming(self, node: str) -> tuple[str, ...]:
        """Return the names of the zones of which a row names the node."""
        zones = self.master.zones.values() if self.master is not None else ()
        return tuple(sorted(zone.record.name for zone in zones if zone.names(node)))

    def registration(self, node: str) -> NodeRecord | None:
        """Return the registration that the master wants for the node, if any."""
        return self.master.registration(node) if self.master is not None else None

    def preview(self, uid: str, without: Sequence[str], more: int) -> Preview | None:
        """Return the migrations a zone would have; None while it is not led.

        Raises ValueError with the reason if there can be none.
        """
        zone = self.master.zones.get(uid) if self.master is not None else None
        return zone.preview(without, more, self._clock.now()) if zone is not None else None

    def recover(self, uid: str, asked: Recovery) -> RecoveryAnswer | None:
        """Do what a person decides for a zone (Master.recover); None while it is not led."""
        if self.master is None or uid not in self.master.zones:
            return None
        told: list[RecoveryAnswer] = []
        self.step(lambda master: told.append(master.recover(uid, asked, self._clock.now())))
        return told[0] if told else None

    async def rows_stored(self, uid: str, answer: RecoveryAnswer) -> None:
        """Wait until what `recover` just decided is stored; raises OutcomeUnknown if in doubt."""
        decided = [each.row for each in answer.partitions]
        await self._awaited.rows(uid, [row for row in decided if row is not None])

    def disruption(self, gone: Collection[str] = (), restarted: Collection[str] = ()) -> Disruption:
        """Judge which agents may restart now (Master.disruption); none while not leading."""
        if self.master is None or self._stopped:
            return Disruption((), (), 0)
        return self.master.disruption(gone, restarted)

    def load(self) -> ClusterLoad:
        """Return what each agent holds; nothing while not leading."""
        master = self.master
        return cluster_load(master.agents, master.zones.values()) if master else ClusterLoad()

    def take_node_facts(
        self,
        cordoned: Collection[str],
        domains: Mapping[str, str],
        pods: Mapping[str, PodFacts],
        ended: Mapping[str, Collection[str]],
    ) -> None:
        """Take agents on cordoned nodes, domains, facts of pods, words of ended processes."""
        self.step(lambda master: master.keep_primaries_off(cordoned, self._clock.now()))
        self.step(lambda master: master.places.tell_all(domains, pods))
        self.step(lambda master: master.processes_ended(ended))

    @property
    def is_stopped(self) -> bool:
        """Whether it has ended for good."""
        return self._stopped

    def status(self) -> ClusterStatus:
        """Return the current status; empty before it leads, the last one after a defect."""
        if self.master is None or self.has_failed:
            return self._last_status
        if self._status is None:
            self._status = self._last_status = self.master.status()
        return self._status

    def zone_status(self, uid: str) -> ZoneStatus | None:
        """Return a zone's current status; None while it is not led.  Cheap while it is at rest."""
        if self.has_failed:
            return next((zone for zone in self._last_status.zones if zone.uid == uid), None)
        zone = self.master.zones.get(uid) if self.master is not None else None
        return zone.status() if zone is not None else None

    def states(self) -> list[ToldEvent]:
        """Return the state of each zone, for clients that have missed events."""
        return states(self.status().zones, self.events.last, self._clock.now().wall_ms)

    @property
    def is_recovering(self) -> bool:
        """Whether agents are still to tell zones and rows."""
        return self._recovering

    @property
    def has_recovered(self) -> bool:
        """Whether all agents are linked and have told all, and every partition has its row."""
        return self.master is not None and not self.unreached() and self.master.has_recovered

    @property
    def has_heard_all(self) -> bool:
        """Whether all agents are linked and have told all they have; rows may still be missing."""
        return self.master is not None and not self.unreached() and self.master.has_heard_all

    @property
    def recovery(self) -> str:
        """Which agents a recovery waits for, as a sentence; empty if there is none."""
        return recovery_waits(self.unreached()) if self._recovering else ""

    def keepers(self, uid: str) -> list[str]:
        """Return the agents that have reported data of the zone."""
        agents = self.master.agents if self.master is not None else {}
        return sorted(node for node, agent in agents.items() if uid in agent.kept)

    def end_recovery(self) -> None:
        """End the recovery: from now on zones are those that are declared."""
        self._recovering = False
        self.step(lambda master: master.end_recovery())

    @property
    def is_leading(self) -> bool:
        """Whether it has begun to decide and has not ended."""
        return self.master is not None and not self._stopped

    @property
    def not_ready(self) -> str:
        """Why it does not lead, or why its decisions cannot be written; empty if all is well."""
        refusal = self.refusal() if not self.problem else None
        return self.problem or (f"blocked: {refusal.sentence}" if refusal is not None else "")

    def unreached(self) -> dict[str, str]:
        """Return address -> why no agent is registered from there now."""
        return self._refusals.unreached(self.dialing)

    # --- beginning and end ------------------------------------------------------------------------

    async def _start(self) -> None:
        delay = RETRY_S
        while True:
            try:
                keys = (await self._secret()).keys("master")
                term, stored = await self._writer.load()
                break
            except InvariantError as error:
                self.stop_for(error)
                return
            except (SecretRefused, MetastoreUnavailable) as error:
                self.problem = f"the state needed to lead it cannot be read: {error}"
                _log.warning("cluster %s: %s", self.cluster, self.problem)
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_MAX_S)
        if self._stopped:
            return
        now = self._clock.now()
        self._recovering = self._ask_recovering()
        master = Master(term, self._settings, now, self._recovering, self._rebuilds)
        master.load({key: each.value for key, each in stored.items()}, now)
        for key, each in stored.items():
            master.damaged(key, each.damaged)
        self.master = master
        self.events.begin(term)
        self._counts.lead(self.known_zones().values())
        self.problem = ""
        _log.info("cluster %s: master in term %d (%s)", self.cluster, term, self._word)
        self._endpoint = Endpoint(self._hello, self._handler, keys)
        self.set_addresses(self._addresses)
        for record in list(self._zones.values()):
            self.set_zone(record)
        self.step(lambda master: master.tick(self._clock.now()))
        if self._changes is not None:
            self._perform(self._writer.follow(self._changes()))
            await self._writer.look_at_unread()
            return  # the watch tells what another process writes
        for pause in pauses_s():
            await asyncio.sleep(pause)
            await self.look_again()

    async def look_again(self) -> None:
        """Take what another process has stored since the last read."""
        told = self.master.told_newer() if self.master is not None else None
        stored = await self._writer.look_again()
        if told is not None and stored is not None:
            self.step(lambda master: master.looked_again(told, stored))

    def _look_soon(self) -> None:
        """Look again: agents know newer rows than were read, or zones that were not.

        Either another process has stored them, or the metastore is older than the agents.
        """
        now_ms = self._clock.now().boot_ms
        is_looking = self._looking is not None and not self._looking.done()
        if is_looking or now_ms - self._looked_ms < RETRY_S * 1000:
            return
        self._looked_ms = now_ms
        self._looking = self._perform(self.look_again())

    def _perform(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        task.add_done_callback(self._task_ended)
        return task

    # --- what the metastore holds (writer.Leader) -------------------------------------------------

    def written(self, key: Key, value: Value | None) -> None:
        """Take the news that the metastore holds what was wanted."""
        self.step(lambda master: master.written(key, value, self._clock.now()))
        self._awaited.stored(key, value)

    def reloaded(self, key: Key, value: Value | None, damaged: Sequence[DamagedRow] = ()) -> None:
        """Take what the metastore holds instead of what was wanted; `damaged`: its invalid rows."""
        self.step(lambda master: master.reloaded(key, value, self._clock.now(), damaged))
        self._awaited.stored(key, value)

    def blocked(self, refusal: Refusal | None) -> None:
        """See writer.Leader: tell users once."""
        self.tell([event_of(refusal)])

    def refusal(self, uid: str = "") -> Refusal | None:
        """Return why nothing is decided, or why writes fail (of a zone, or any), if so."""
        if self.has_failed:
            return Refusal(MASTER_FAILED, self.problem)
        return self._writer.blocked(uid)

    def _hello(self) -> Hello:
        term = self.master.master_term if self.master is not None else 0
        return Hello(FORMAT_VERSION, "master", self._name, master_term=term, master_word=self._word)

    def _end(self, why: str, *, hangs_up: bool = True) -> None:
        if self._stopped:
            return
        self._stopped = True
        self.problem = why
        self.events.close()
        self._counts.end()
        self._awaited.end(f"no longer led here, {why}")
        if self._timer is not None:
            self._timer.cancel()
        if hangs_up and self._endpoint is not None:  # agents say that they are led while linked
            self._perform(self._endpoint.close(at_once=True))
        _log.info("cluster %s: no longer led: %s", self.cluster, why)

    def _end_outdated(self, why: str) -> None:
        """End: agents have rows or zones that the metastore lacks; decisions contradict them."""
        if not self._stopped:
            text = f"the metastore is older than its agents: {why}"
            self._end(f"{text}; {self._way_out()}")
            _log.error("cluster %s: %s", self.cluster, self.problem)

    def overtaken(self, refused: Refused) -> None:
        """End: another process led in this mastership's number or a higher one.

        That says nothing of the rows; the next mastership is counted above both.
        """
        highest = max(refused.master_term, self.status().master_term)
        self._end(f"{refused.reason}; the next master term will be above {highest}")
        _log.warning("cluster %s: %s", self.cluster, self.problem)
        self._perform(self._count_above(highest))

    async def _count_above(self, master_term: int) -> None:
        await self._writer.count_above(master_term)
        self._on_overtaken(f"cluster {self.cluster}: {self.problem}")

    def stop_for(self, error: InvariantError) -> None:
        """Stop before anything is written or sent: the metastore holds what must not exist.

        The process stays: the next one would read the same, and other clusters are well.
        """
        self._note_broken()
        _log.error("cluster %s: %s", self.cluster, error, exc_info=error)
        self._end(f"stopped by a broken invariant: {error}")

    def fail(self, error: BaseException) -> None:
        """End after a defect: write and send nothing more, and tell the owner."""
        if isinstance(error, InvariantError):
            self._note_broken()
        _log.error("cluster %s: %r", self.cluster, error, exc_info=error)
        if self._stopped:
            return
        self.has_failed = True
        self._end(f"stopped by a defect: {type(error).__name__}: {error}")
        self._metrics.master_defects.labels(self._namespace, self._name).inc()
        self._metrics.count_events(self._namespace, "", Reason.MASTER_FAILED)
        self._on_event(Event("", None, Reason.MASTER_FAILED, self.problem, "Warning"))
        self._on_defect(f"cluster {self.cluster}: {self.problem}")

    def _note_broken(self) -> None:
        self.is_broken = True
        self._metrics.invariant_errors.inc()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    # --- turns ------------------------------------------------------------------------------------

    def step(self, act: Callable[[Master], object]) -> None:
        """Have the master take one input; its outputs are performed at the end of the turn."""
        if self._stopped or self.master is None:
            return
        self._status = None
        try:
            act(self.master)
        except Exception as error:
            self.fail(error)
            return
        if not self._pump_scheduled:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _ask(self, act: Callable[[Master], str]) -> str:
        answers: list[str] = []
        self.step(lambda master: answers.append(act(master)))
        return answers[0] if answers else f"cluster {self.cluster} is not led: {self.problem}"

    @ends_with_a_defect
    def _pump(self) -> None:
        self._pump_scheduled = False
        if self.master is None or not self.may_act():
            return
        outputs = self.master.take_outputs()
        for key, value in outputs.writes:
            self._perform(self._writer.write(key, value))
        if self.master.outdated:
            self._end_outdated(self.master.outdated)
            return
        if self.master.has_doubts:
            self._look_soon()
        self._links.send(outputs.sends)
        if outputs.events:
            self.tell(outputs.events)
        self._links.tell_news(self.master.master_term, self._clock.now().boot_ms)
        self._set_timer(self.master.next_deadline_ms)

    def tell(self, events: Sequence[Event]) -> None:
        """Tell events to users: to agents, metrics, the log and the owner."""
        self._counts.lead(self.known_zones().values())
        wall_ms = self._clock.now().wall_ms
        self._links.add_news(self.events.add(events, self._counts.names, wall_ms))
        self._counts.count(events, self.master.master_term if self.master is not None else None)
        for event in events:
            self._on_event(event)

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(deadline_ms - self._clock.now().boot_ms, 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    @ends_with_a_defect
    def _tick(self) -> None:
        now = self._clock.now()
        self._links.abort_silent(now.boot_ms)
        self.step(lambda master: master.tick(now))
        endpoint = self._endpoint
        if endpoint is not None and now.boot_ms - self._dialing_looked_ms >= LOOK_AT_DIALED_MS:
            self._dialing_looked_ms = now.boot_ms
            self.step(lambda master: self.dialing.look(master, endpoint, now))

    def may_act(self) -> bool:
        """Return whether this process may write and publish at this moment."""
        if self._stopped:
            return False
        if not self._mandate.holds():
            self._end("this operator may no longer be the master")
            self._on_failed(f"cluster {self.cluster}: {self.problem}")
        return not self._stopped
