"""What a voter said whose store is gone for good counts no more; who is gone is told in order."""

from collections.abc import Sequence

from quorate.facts.lineage import Lineage
from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.agent.replicas import Replicas
from quorate.protocol.copies.leases import Leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage
from quorate.protocol.copies.waiters import Waiter
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import Members, ZoneTable
from quorate.protocol.messages.replication import Acks, FenceAck, HeartbeatAck
from quorate.protocol.settings import DEFAULTS
from quorate_sim.disk import Image, SimStorage

NOW = Now(100_000, 100_000)
A = Holder("a", "store-a", 1)
ROW = PartitionRow(0, 3, 3, A, ("a", "b"), (Voter("a", "store-a"), Voter("b", "store-b")))


def nodes(store_of_b: str, incarnation_of_b: int = 1) -> list[NodeRecord]:
    return [
        NodeRecord("a", "store-a", 1, "a", 1, "a"),
        NodeRecord("b", store_of_b, incarnation_of_b, "b", 1, "b"),
    ]


def serving() -> tuple[Replicas, Primary]:
    """Agent "a", primary of a partition that "b" votes for, too; its first two turns are over."""
    leases = Leases(DEFAULTS, 1, 0)
    replicas = Replicas(
        ZoneRecord("uid", "books", 1, 2), A, SimStorage(Image()), leases, DEFAULTS, NOW
    )
    replicas.set_members(nodes("store-b"))
    replicas.set_rows([ROW], NOW)
    replicas.receive("b", FenceAck("uid", 0, 3, "store-b", Lineage(), 0, (), 0, False), NOW)
    replicas.synced(replicas.flush(NOW), NOW)
    replicas.receive("b", Acks("uid", ((0, 3, 0),)), NOW)
    leases.granted("b", HeartbeatAck(leases.heartbeat("b", NOW).sent_ms, 2000, 1, ()))
    replicas.renew_own_leases()
    role = replicas.roles[0]
    assert role.stage is Stage.SERVING
    return replicas, role


def test_what_only_a_store_held_that_is_gone_is_not_acknowledged() -> None:
    replicas, role = serving()
    waiter = Waiter((b"k",), None, 0)
    role.write(((b"k", b"v", 0),))
    role.wait(waiter)
    replicas.commands_wrote(role)
    turn = replicas.flush(NOW)  # our own disk is slow: only b has it durably
    replicas.receive("b", Acks("uid", ((0, 3, 1),)), NOW)

    # b starts over an empty folder: its first process there, like the one that is registered.
    replicas.set_members(nodes("store-b2"))

    assert role.advance(NOW.boot_ms) == []
    assert role.acknowledged() == 0
    replicas.synced(turn, NOW)
    assert replicas.take_finished().answered == [waiter]


def test_a_late_word_of_a_store_that_is_gone_counts_for_nothing() -> None:
    replicas, role = serving()
    role.write(((b"k", b"v", 0),))
    replicas.commands_wrote(role)
    replicas.flush(NOW)
    replicas.set_members(nodes("store-b2"))
    replicas.receive("b", FenceAck("uid", 0, 3, "store-b", Lineage(), 0, (), 0, False), NOW)
    replicas.receive("b", Acks("uid", ((0, 3, 1),)), NOW)

    assert role.acknowledged() == 0


def test_who_may_serve_alone_asks_for_leases_again_once_the_store_is_back() -> None:
    replicas, role = serving()
    replicas.set_members(nodes("store-b2"))
    assert role.serves(1 << 40)

    replicas.set_members(nodes("store-b"))

    assert not role.serves(1 << 40)


def test_a_process_that_hears_of_its_own_successor_counts_itself_no_more() -> None:
    replicas, role = serving()
    role.write(((b"k", b"v", 0),))
    replicas.commands_wrote(role)
    turn = replicas.flush(NOW)
    successor = NodeRecord("a", "store-a2", 1, "elsewhere", 1, "a")
    replicas.set_members([successor, nodes("store-b")[1]])
    replicas.synced(turn, NOW)

    assert not role.serves(1 << 40)  # no longer than b has granted its lease
    assert role.acknowledged() < role.copy.lwm


# --- in order ------------------------------------------------------------------------------------


class Store:
    """The durable state of an agent, in memory."""

    def open_zone(self, record: ZoneRecord) -> SimStorage:
        return SimStorage(Image())

    def keep_zone(self, record: ZoneRecord) -> bool:
        return True

    def kept_zones(self) -> list[ZoneRecord]:
        return []

    def remove_zone(self, uid: str) -> bool:
        raise AssertionError(uid)

    def raise_master_term(self, term: int, word: str) -> None:
        pass


ZONE = ZoneRecord("uid", "books", 1, 2, storage=StorageKind.IN_MEMORY)
IN_MEMORY = PartitionRow(
    0,
    9,
    9,
    Holder("a", "store-a.1", 1),
    ("a", "b"),
    (Voter("a", "store-a.1"), Voter("b", "store-b.2")),
)


def members(sequence: int, incarnation_of_b: int, master_term: int = 1) -> Members:
    return Members(master_term, tuple(nodes("store-b", incarnation_of_b)), sequence)


def agent(*told: Members | ZoneTable) -> AgentCore:
    hello = Hello(FORMAT_VERSION, "agent", "main", "a", "store-a", 1)
    core = AgentCore(hello, Store(), DEFAULTS, Now(0, 0))
    hear(core, told)
    return core


def hear(core: AgentCore, told: Sequence[Members | ZoneTable]) -> None:
    """One message of the master per turn, each turn durable at once; then leases run out."""
    for message in told:
        core.receive_from_master(message, NOW)
        for uid, turn in core.flush(NOW).turns:
            core.synced(uid, turn, NOW)


def serves_alone(core: AgentCore) -> bool:
    role = core.zones["uid"].primaries[0]
    return role is not None and role.stage is Stage.SERVING


def test_members_that_were_overtaken_make_nobody_serve_alone() -> None:
    core = agent(members(2, 2), ZoneTable(1, ZONE, (IN_MEMORY,), 2), members(1, 1))

    assert core.members["b"].incarnation == 2
    assert not serves_alone(core)
    hear(core, [members(3, 3)])  # the second process, too, has taken its memory along
    assert serves_alone(core)


def test_rows_wait_for_the_members_that_know_their_stores() -> None:
    core = agent(members(1, 1), ZoneTable(1, ZONE, (IN_MEMORY,), 2))
    assert core.zones == {}

    hear(core, [members(2, 2), ZoneTable(1, ZONE, (IN_MEMORY,), 2)])

    assert not serves_alone(core)
    assert core.zones["uid"].table[0] == IN_MEMORY


def test_another_master_counts_from_one_again() -> None:
    core = agent(members(7, 1), members(1, 2, master_term=2))

    assert core.members["b"].incarnation == 2
