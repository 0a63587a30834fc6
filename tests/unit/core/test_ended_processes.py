"""A process that has surely ended took its copies in memory along: its votes are given up."""

import msgspec

from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.messages.events import Reason
from quorate.protocol.messages.handshake import RefusalCode, Refused
from quorate_lone_master.world import LoneMaster, placed_master

ZONE = ZoneRecord("uid-1", "books", 1, 3, storage=StorageKind.IN_MEMORY)
ON_DISK = msgspec.structs.replace(ZONE, storage=StorageKind.PERSISTENT)
SETTLED_MS = 3_000
"""Far less than the 300 s after which one that is only silent is replaced."""


def left(world: LoneMaster, node: str, *words: str) -> None:
    """The node leaves; these processes of it have ended."""
    world.kill(node)
    world.master.processes_ended({node: words})
    world.pass_time(SETTLED_MS)


def voters(world: LoneMaster, zone: ZoneRecord = ZONE) -> set[str]:
    return {*world.rows(zone)[0].voter_nodes}


def test_two_that_end_one_after_the_other_leave_one_that_serves() -> None:
    world = placed_master(ZONE)
    first, second, last = reversed(world.rows(ZONE)[0].owners)

    left(world, first, f"{first}-1")
    assert voters(world) == {second, last}
    told = [event.message for event in world.events if event.reason == Reason.MEMORY_GONE]
    assert told == [f"{first} has lost its copies in memory with its process: they vote no more"]
    left(world, second, f"{second}-1")
    assert voters(world) == {last}
    assert world.status(ZONE).unavailable == 0

    world.connect(first, second)
    world.wait(lambda: world.status(ZONE).available == 1)
    assert voters(world) == {first, second, last}


def test_one_that_may_still_run_keeps_its_vote() -> None:
    """The end of another process of it proves nothing, nor does an end while it is heard."""
    world = placed_master(ZONE)
    node = world.rows(ZONE)[0].owners[-1]
    left(world, node, "another", f"{node}-0", "")
    assert node in voters(world)

    world = placed_master(ZONE)
    world.master.processes_ended({node: [f"{node}-1"]})
    world.pass_time(SETTLED_MS)
    assert node in voters(world)
    world.kill(node)
    world.pass_time(SETTLED_MS)
    assert node not in voters(world)


def test_an_end_that_is_no_longer_shown_still_counts() -> None:
    """A pod that is gone shows nothing, nor does one whose next process ended before it greeted."""
    for shown_later in (None, ["of its next process"]):
        world = placed_master(ZONE)
        node = world.rows(ZONE)[0].owners[-1]
        world.master.processes_ended({node: ["another", f"{node}-1"]})
        world.master.processes_ended({} if shown_later is None else {node: shown_later})
        world.pass_time(SETTLED_MS)
        assert node in voters(world)

        world.kill(node)
        world.pass_time(SETTLED_MS)
        assert node not in voters(world)


def test_what_is_on_disk_is_waited_for() -> None:
    world = placed_master(ON_DISK)
    node = world.rows(ON_DISK)[0].owners[-1]
    left(world, node, f"{node}-1")

    assert node in voters(world, ON_DISK)
    record = world.master.registration(node)
    assert record is not None
    assert not record.ended


def test_the_next_master_knows_it_from_the_registration() -> None:
    world = placed_master(ZONE)
    world.fills = lambda zone, partition, node: False
    *others, node = world.rows(ZONE)[0].owners
    left(world, node, f"{node}-1")
    assert node in voters(world)

    world.fills = lambda zone, partition, node: True
    world.same_processes = True
    world.follow()
    world.connect(*others)
    world.pass_time(2 * SETTLED_MS)
    assert node not in voters(world)


def test_a_process_whose_votes_were_given_up_takes_part_no_more() -> None:
    world = placed_master(ZONE)
    node = world.rows(ZONE)[0].owners[-1]
    left(world, node, f"{node}-1")

    world.master.agent_connected(world.hello(node, 1), world.now)
    sends = world.master.take_outputs().sends
    (refused,) = [message for _, message in sends if isinstance(message, Refused)]
    assert refused.code == RefusalCode.OLDER_PROCESS

    world.connect(node)  # its next process
    world.wait(lambda: world.status(ZONE).available == 1)
    record = world.master.registration(node)
    assert record is not None
    assert (record.incarnation, record.ended) == (2, False)
