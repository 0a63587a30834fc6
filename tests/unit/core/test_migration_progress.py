"""A migration may take as long as it likes, but it must move."""

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.messages.events import Event
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import (
    Activated,
    AgentReport,
    CaughtUp,
    Inventory,
    TransferProgress,
)
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.zone_master.partition_state import PartitionState

ZONE = ZoneRecord("uid-1", "books", 1, 2, scale_down_ms=10_000)
STALL_MS = DEFAULTS.migration_stall_ms


class World:
    """a and b hold the only partition; c and d come when the test says so, and never are even."""

    def __init__(self) -> None:
        self.ms = 0
        self.events: list[Event] = []
        self.master = Master(1, DEFAULTS, self.now)
        self.connect("a", "b")
        self.master.set_zone(ZONE, self.now)
        self.pass_time(1_000)

    @property
    def now(self) -> Now:
        return Now(1_000_000 + self.ms, self.ms)

    @property
    def part(self) -> PartitionState:
        return self.master.zones[ZONE.uid].parts[0]

    @property
    def destination(self) -> str:
        active = self.part.row.active
        return active.destination.node if active and active.destination else ""

    def connect(self, *nodes: str) -> None:
        for node in nodes:
            hello = Hello(FORMAT_VERSION, "agent", "main", node, f"store-{node}", 1)
            self.master.agent_connected(hello, self.now)
        self.write()
        for node in nodes:
            self.master.receive(node, Inventory("", ()), self.now)
        self.write()

    def write(self) -> None:
        while True:
            outputs = self.master.take_outputs()
            self.events += outputs.events
            if not outputs.writes:
                return
            for key, value in outputs.writes:
                self.master.written(key, value, self.now)

    def pass_time(self, ms: int, step_ms: int = 500) -> None:
        """Everybody is there and serves, nothing is moved."""
        until = self.ms + ms
        while self.ms < until:
            self.ms += step_ms
            for node, agent in self.master.agents.items():
                if agent.connected:
                    self.master.receive(node, AgentReport(1), self.now)
            self.master.tick(self.now)
            self.write()
            row = self.part.row
            assert row.primary is not None
            serves = Activated(ZONE.uid, 0, row.term, 0)
            self.master.receive(row.primary.node, serves, self.now)
            self.write()

    def lose_b(self) -> None:
        self.master.agent_disconnected("b", True, self.now)
        self.pass_time(ZONE.scale_down_ms + 1_000)

    def progress(self, node: str, done: int) -> None:
        self.master.receive(node, TransferProgress(ZONE.uid, 0, done, 1 << 40), self.now)

    def failed(self) -> list[str]:
        return [each.message for each in self.events if each.reason == "MigrationFailed"]


def migrating() -> World:
    """c is to take the place of b."""
    world = World()
    world.connect("c")
    world.lose_b()
    assert world.destination == "c"
    return world


def test_a_migration_that_does_not_move_is_given_up_and_says_why() -> None:
    world = migrating()
    version = world.part.row.version

    world.pass_time(STALL_MS + 1_000)

    (why,) = world.failed()
    assert "no progress for 60 s" in why
    assert "to c" in why
    assert world.part.row.version >= version + 2


def test_a_migration_that_moves_goes_on_for_hours() -> None:
    world = migrating()
    active = world.part.row.active

    for done in range(1, 300):
        world.pass_time(STALL_MS * 3 // 4)
        world.progress("c", done * 1000)

    assert world.part.row.active == active
    assert world.failed() == []


def test_a_migration_whose_row_no_quorum_stores_is_given_up_and_says_so() -> None:
    world = migrating()
    row, active = world.part.row, world.part.row.active
    assert active is not None
    until = world.ms + STALL_MS
    while world.ms < until:  # said again and again, and what is written meanwhile moves on
        caught_up = CaughtUp(ZONE.uid, 0, active.migration_id, row.version, row.term)
        world.master.receive("a", caught_up, world.now)
        world.progress("c", world.ms)
        world.pass_time(5_000)

    world.pass_time(5_000)

    (why,) = world.failed()
    assert f"a quorum of the voters has not stored row {row.version}" in why
    assert world.part.row.version >= row.version + 2


def _stand_still(world: World) -> None:
    """The master does not run for longer than a migration may; then it hears, and looks."""
    world.ms += 2 * STALL_MS
    for node in ("a", "c"):
        world.master.receive(node, AgentReport(1), world.now)
    world.master.tick(world.now)
    world.write()


def test_a_master_that_did_not_run_waits_anew_for_a_quorum_to_store_the_row() -> None:
    world = migrating()
    row, active = world.part.row, world.part.row.active
    assert active is not None
    caught_up = CaughtUp(ZONE.uid, 0, active.migration_id, row.version, row.term)
    world.master.receive("a", caught_up, world.now)

    _stand_still(world)

    assert world.part.row.active == active
    assert world.failed() == []


def test_the_same_figure_again_is_no_progress() -> None:
    world = migrating()
    world.progress("c", 1000)

    for _ in range(STALL_MS // 10_000 + 1):
        world.pass_time(10_000)
        world.progress("c", 1000)

    assert len(world.failed()) == 1


def test_progress_of_another_copy_is_none_of_the_destination() -> None:
    world = migrating()

    for done in range(STALL_MS // 10_000 + 1):
        world.pass_time(10_000)
        world.progress("a", done * 1000)

    assert len(world.failed()) == 1


def test_a_failed_migration_waits_longer_each_time_before_it_is_tried_again() -> None:
    world = migrating()
    pauses: list[int] = []
    for _ in range(3):
        world.pass_time(STALL_MS + 500)
        while world.destination:
            world.pass_time(100, 100)
        began = world.ms
        while not world.destination:
            world.pass_time(100, 100)
        pauses.append(world.ms - began)

    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]


def test_another_destination_is_tried_at_once() -> None:
    world = migrating()
    while len(world.failed()) < 6:
        world.pass_time(1_000)
    assert world.destination == ""
    world.connect("d")

    world.master.agent_disconnected("c", True, world.now)
    began = world.ms
    while world.destination != "d":
        world.pass_time(100, 100)

    # c is waited for first, as every node that left; no pause comes on top.
    assert world.ms - began <= ZONE.scale_down_ms + 1_000


def test_a_master_that_did_not_run_gives_no_migration_up_for_it() -> None:
    world = migrating()
    active = world.part.row.active

    _stand_still(world)

    assert world.part.row.active == active
    assert world.failed() == []
