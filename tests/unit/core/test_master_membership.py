"""Whom the master takes for left, and when it must not judge."""

import msgspec
import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.time import Now
from quorate.facts.topology import Happening, Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.master.master import Master
from quorate.protocol.members.membership import record_of
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode, Refused
from quorate.protocol.messages.master import AgentReport
from quorate.protocol.metastore import NodeKey, ShardKey, ZoneKey
from quorate.protocol.settings import DEFAULTS

NAMES = ("agent-1", "agent-2")
SILENCE_MS = DEFAULTS.failure_detection_ms


def at(boot_ms: int) -> Now:
    return Now(1_700_000_000_000 + boot_ms, boot_ms)


def with_agents() -> Master:
    """Two registered agents, last heard at 10 000."""
    master = Master(1, DEFAULTS, at(0))
    for boot_ms in range(0, 10_001, 100):
        master.tick(at(boot_ms))
    for name in NAMES:
        master.agent_connected(Hello(FORMAT_VERSION, "agent", "main", name, "s", 1), at(10_000))
    for key, value in master.take_outputs().writes:
        master.written(key, value, at(10_000))
    assert online(master) == list(NAMES)
    return master


def online(master: Master) -> list[str]:
    return [node.name for node in master.status().nodes if node.online]


def test_an_agent_that_is_silent_for_too_long_has_left() -> None:
    master = with_agents()
    for boot_ms in range(10_000, 10_000 + SILENCE_MS + 1, 100):
        master.receive("agent-1", AgentReport(1), at(boot_ms))
        master.tick(at(boot_ms))

    assert online(master) == ["agent-1"]


def test_a_master_that_did_not_run_hears_everybody_before_it_judges_anybody() -> None:
    master = with_agents()

    woken_ms = 10_000 + 5 * SILENCE_MS
    master.receive("agent-1", AgentReport(1), at(woken_ms))  # agent-2's is still unread
    master.tick(at(woken_ms + 1))

    assert online(master) == list(NAMES)
    master.receive("agent-2", AgentReport(1), at(woken_ms + 2))
    for boot_ms in range(woken_ms, woken_ms + SILENCE_MS - 200, 100):
        master.tick(at(boot_ms))
    assert online(master) == list(NAMES)


def test_after_a_standstill_the_silent_are_still_found() -> None:
    master = with_agents()

    woken_ms = 10_000 + 5 * SILENCE_MS
    for boot_ms in range(woken_ms, woken_ms + SILENCE_MS + 1, 100):
        master.tick(at(boot_ms))

    assert online(master) == []


def test_one_that_is_heard_again_over_its_link_is_back_although_an_earlier_process_ended() -> None:
    """A pod shows the end of a container's earlier process as long as the pod is there."""
    master = with_agents()
    master.processes_ended({"agent-2": ["of an earlier process"]})

    def run(from_ms: int, *heard: str) -> None:
        for boot_ms in range(from_ms, from_ms + SILENCE_MS + 1, 100):
            for node in heard:
                master.receive(node, AgentReport(1), at(boot_ms))
            master.tick(at(boot_ms))
            for key, value in master.take_outputs().writes:
                master.written(key, value, at(boot_ms))

    run(10_000, "agent-1")
    assert online(master) == ["agent-1"]
    run(10_000 + SILENCE_MS, *NAMES)
    assert online(master) == list(NAMES)


def rewritten(**changes: object) -> tuple[NodeRecord, NodeRecord | None]:
    """How agent-2 is registered while it takes part, and what is written when another write of its
    record comes back as one with these changes; nothing when there are none, its removal."""
    master, key = with_agents(), NodeKey("agent-2")
    before = master.registration("agent-2")
    assert before is not None
    assert master.drain("agent-2", False, at(10_001)) == ""
    master.take_outputs()

    stored = msgspec.structs.replace(before, **changes) if changes else None
    master.reloaded(key, stored, at(10_002))

    for written, value in master.take_outputs().writes:
        if written == key:
            assert isinstance(value, NodeRecord)
            master.written(key, value, at(10_003))
            assert online(master) == list(NAMES)
            return before, value
    return before, None


@pytest.mark.parametrize(
    "changes",
    [{"left_since_ms": 9}, {"incarnation": 0}, {"store": "old", "incarnation": 3}, {}],
)
def test_who_takes_part_is_registered_again_when_an_earlier_master_wrote_last(
    changes: dict[str, object],
) -> None:
    """That master stood still, and had not heard of the process that is here."""
    before, written = rewritten(**changes)
    assert written == before


def test_what_a_later_process_has_registered_stays() -> None:
    _, written = rewritten(incarnation=2)
    assert written is None


@pytest.mark.parametrize("changes", [{"incarnation": 2}, {"store": "another", "incarnation": 1}])
def test_a_write_that_waits_does_not_bring_an_earlier_process_back(
    changes: dict[str, object],
) -> None:
    """The next master would take the later one's memory, or folder, for gone for good."""
    master, key = with_agents(), NodeKey("agent-2")
    present = master.registration("agent-2")
    assert present is not None
    assert master.drain("agent-2", True, at(10_001)) == ""
    master.take_outputs()  # this write is under way
    master.agent_disconnected("agent-2", True, at(10_002))  # that it left waits for its end

    later = msgspec.structs.replace(present, **changes)
    master.reloaded(key, later, at(10_003))

    # That it is to drain was promised to a person: it goes on with the later process.
    assert master.take_outputs().writes == [(key, msgspec.structs.replace(later, draining=True))]
    assert master.agents["agent-2"].record == later


def test_a_process_that_another_has_followed_meanwhile_is_not_registered_over_it() -> None:
    master, key = Master(1, DEFAULTS, at(0)), NodeKey("agent-1")
    master.agent_connected(hello(1, "p"), at(0))
    assert [written for written, _ in master.take_outputs().writes] == [key]

    later = msgspec.structs.replace(record_of(hello(2, "next")), since=Happening(7, 30))
    master.reloaded(key, later, at(100))

    outputs = master.take_outputs()
    assert outputs.writes == []
    (refused,) = [message for _, message in outputs.sends if isinstance(message, Refused)]
    assert refused.code == RefusalCode.OLDER_PROCESS
    assert "incarnation 2 of store s" in refused.reason
    for boot_ms in range(100, 1_000, 100):  # what it still says does not bring it back
        master.receive("agent-1", AgentReport(1), at(boot_ms))
        master.tick(at(boot_ms))
    assert master.take_outputs().writes == []
    assert online(master) == []
    assert registered(master, hello(2, "next"), at(1_000)) == []
    assert known_process(master) == (2, "next")
    assert online(master) == ["agent-1"]


def test_that_an_agent_left_is_written_again_when_it_was_not() -> None:
    master, key = with_agents(), NodeKey("agent-2")
    present = master.registration("agent-2")
    master.agent_disconnected("agent-2", True, at(10_001))
    ((written, value),) = master.take_outputs().writes
    assert written == key

    master.reloaded(key, present, at(10_002))  # nobody knew whether it was written

    assert [*master.take_outputs().writes] == [(key, value)]


def test_one_that_left_and_was_removed_by_another_stays_removed() -> None:
    master, key = with_agents(), NodeKey("agent-2")
    master.agent_disconnected("agent-2", True, at(10_001))
    master.take_outputs()

    master.reloaded(key, None, at(10_002))

    assert [*master.take_outputs().writes] == []


def hello(incarnation: int, process: str, host: str = "h1") -> Hello:
    return Hello(
        FORMAT_VERSION, "agent", "main", "agent-1", "s", incarnation, host=host, process=process
    )


def registered(master: Master, greeting: Hello, now: Now) -> list[Refused]:
    """Connect; every write succeeds; the refusals that were sent."""
    master.agent_connected(greeting, now)
    refusals: list[Refused] = []
    for _ in range(3):
        outputs = master.take_outputs()
        refusals += [message for _, message in outputs.sends if isinstance(message, Refused)]
        for key, value in outputs.writes:
            master.written(key, value, now)
    return refusals


def with_process() -> Master:
    """agent-1 is registered as incarnation 4 by the process p."""
    master = Master(1, DEFAULTS, at(0))
    assert registered(master, hello(4, "p"), at(0)) == []
    assert online(master) == ["agent-1"]
    return master


def known_process(master: Master) -> tuple[int, str]:
    record = master.agents["agent-1"].record
    assert record is not None
    return record.incarnation, record.process


def test_a_process_that_lost_its_connection_is_taken_in_again() -> None:
    master = with_process()
    master.agent_disconnected("agent-1", False, at(100))

    assert registered(master, hello(4, "p"), at(200)) == []

    assert online(master) == ["agent-1"]


def test_a_process_on_a_copied_folder_is_refused_and_told_what_to_do() -> None:
    master = with_process()
    master.agent_disconnected("agent-1", False, at(100))

    (refused,) = registered(master, hello(4, "another"), at(200))

    assert refused.code == RefusalCode.COPIED_FOLDER
    for part in ("node agent-1", "incarnation 4", "store s", "another --name"):
        assert part in refused.reason
    assert known_process(master) == (4, "p")


def test_an_agent_that_lost_its_folder_is_taken_in_as_a_new_voter_and_it_is_said() -> None:
    master = with_process()
    master.agent_disconnected("agent-1", True, at(100))
    for key, value in master.take_outputs().writes:
        master.written(key, value, at(100))

    wiped = msgspec.structs.replace(hello(1, "next"), store="another")
    master.agent_connected(wiped, at(200))
    outputs = master.take_outputs()

    (said,) = [event for event in outputs.events if event.reason == "NewStore"]
    assert "agent-1 came back with a new store" in said.message
    for key, value in outputs.writes:
        master.written(key, value, at(200))
    assert known_process(master) == (1, "next")


def test_an_image_that_counts_up_to_a_process_that_has_left_is_set_aside() -> None:
    master = with_process()
    master.agent_disconnected("agent-1", True, at(100))

    (refused,) = registered(master, hello(4, "another"), at(200))

    assert refused.code == RefusalCode.OLDER_IMAGE
    assert "incarnation 4 of store s" in refused.reason


def test_an_older_image_is_set_aside_whatever_process_it_is() -> None:
    master = with_process()

    assert [each.code for each in registered(master, hello(3, "p"), at(200))] == [
        RefusalCode.OLDER_IMAGE
    ]


def test_a_restarted_process_is_taken_in_at_once() -> None:
    master = with_process()
    master.agent_disconnected("agent-1", False, at(100))

    assert registered(master, hello(5, "next"), at(200)) == []

    assert known_process(master) == (5, "next")
    assert online(master) == ["agent-1"]


def test_a_newer_process_elsewhere_is_taken_in_when_the_older_one_has_left() -> None:
    master = with_process()

    (refused,) = registered(master, hello(5, "next", "h2"), at(200))
    assert refused.code == RefusalCode.NAME_IN_USE
    master.agent_disconnected("agent-1", True, at(300))

    assert registered(master, hello(5, "next", "h2"), at(400)) == []
    assert known_process(master) == (5, "next")


def test_a_new_master_tells_a_copy_from_the_process_it_never_saw() -> None:
    record = with_process().agents["agent-1"].record
    assert record is not None
    master = Master(2, DEFAULTS, at(1000))
    master.load({NodeKey("agent-1"): record}, at(1000))

    (refused,) = registered(master, hello(4, "another"), at(1100))

    assert refused.code == RefusalCode.COPIED_FOLDER
    assert registered(master, hello(4, "p"), at(1200)) == []


def of_two_copies(*voters: str, others: str = "s2") -> Master:
    """A zone of two copies: agent-1 came back with the store "another", its old one was "s"."""
    nodes = [
        NodeRecord("agent-1", "another", 1, "h1", 1, "h1"),
        NodeRecord("agent-2", others, 1, "h2", 1, "h2"),
    ]
    stores = {"agent-1": "s", "agent-2": "s2"}
    row = PartitionRow(
        0, 7, 7, Holder("agent-2", "s2", 1), ("agent-2",),
        tuple(Voter(node, stores[node]) for node in voters),
    )  # fmt: skip
    zone = ZoneRecord("uid", "books", 1, 2)
    master = Master(1, DEFAULTS, at(0))
    stored = {ZoneKey("uid"): zone, ShardKey("uid", 0): (row,)}
    master.load({**stored, **{NodeKey(node.name): node for node in nodes}}, at(0))
    return master


def test_a_store_that_others_serve_without_comes_back_only_when_it_votes_no_more() -> None:
    master = of_two_copies("agent-2", "agent-1")

    (refused,) = registered(master, hello(5, "p"), at(100))

    assert refused.code == RefusalCode.NAME_IN_USE
    assert "store s counts as gone for good" in refused.reason
    assert master.refusal(hello(5, "p")) == refused
    assert master.agents["agent-1"].record == NodeRecord("agent-1", "another", 1, "h1", 1, "h1")
    assert registered(of_two_copies("agent-2"), hello(5, "p"), at(100)) == []


def test_a_store_comes_back_where_all_are_gone() -> None:
    master = of_two_copies("agent-2", "agent-1", others="a third")

    assert registered(master, hello(5, "p"), at(100)) == []
