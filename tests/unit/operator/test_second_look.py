"""What another has stored behind a master's back, and what is no news to it."""

import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import Key, NodeKey, Revision, ShardKey, Stored, ZoneKey
from quorate_operator.mastership.second_look import SecondLook

HEAD, SHARD = ZoneKey("z"), ShardKey("z", 0)
ROW = PartitionRow(0, 1, 1, Holder("a", "s", 1), ("a",), (Voter("a", "s"),))
ROWS = Stored((ROW,), "7")


def head(*, deleting: bool = False) -> Stored:
    return Stored(ZoneRecord("z", "z", 1, 1, deleting=deleting), "1")


def test_a_shard_that_was_not_there_before_is_news() -> None:
    # A master that waits for agents to tell of lost rows does not write them.
    look = SecondLook()

    assert look.unread({HEAD: head(), SHARD: ROWS}, {HEAD: "1"}, ()) == [(SHARD, ROWS)]


@pytest.mark.parametrize(
    ("stored", "known"),
    [
        ({SHARD: ROWS}, {}),
        ({HEAD: head(), SHARD: ROWS}, {}),
        ({HEAD: head(deleting=True), SHARD: ROWS}, {HEAD: "1"}),
        ({HEAD: head(), SHARD: ROWS}, {HEAD: "1", SHARD: "7"}),
        ({HEAD: head(deleting=True)}, {HEAD: "1", SHARD: "7"}),
    ],
    ids=["no head", "head not read", "being deleted", "known", "gone with its zone"],
)
def test_what_is_no_news(stored: dict[Key, Stored], known: dict[Key, Revision]) -> None:
    look = SecondLook()

    assert look.unread(stored, known, ()) == []


def test_what_is_gone_or_another_is_news() -> None:
    look = SecondLook()

    known = {HEAD: "1", SHARD: "6", NodeKey("a"): "2"}
    assert look.unread({HEAD: head(), SHARD: ROWS}, known, ()) == [
        (SHARD, ROWS),
        (NodeKey("a"), None),
    ]


def test_a_zones_record_that_another_has_changed_is_news() -> None:
    look = SecondLook()

    assert look.unread({HEAD: head()}, {HEAD: "0"}, ()) == [(HEAD, head())]
    assert look.unread({HEAD: head(deleting=True)}, {HEAD: "0"}, ()) == []
    assert look.unread({}, {HEAD: "0"}, ()) == []


def test_what_the_master_writes_itself_is_no_news() -> None:
    look = SecondLook()
    stored: dict[Key, Stored] = {HEAD: head(), SHARD: ROWS}
    look.write_begins(SHARD)
    with look.looking() as first:
        look.write_ended(SHARD)
    with look.looking() as second:
        look.write_begins(SHARD)
        look.write_ended(SHARD)

    assert look.unread(stored, {HEAD: "1"}, first) == []
    assert look.unread(stored, {HEAD: "1"}, second) == []


def test_a_look_does_not_disturb_another() -> None:
    look = SecondLook()
    with look.looking() as first:
        look.write_begins(SHARD)
        look.write_ended(SHARD)
        with look.looking() as second:
            pass
        look.write_begins(HEAD)

    assert (set(first), set(second)) == ({SHARD, HEAD}, set())


def test_nothing_is_remembered_of_writes_that_have_ended() -> None:
    look = SecondLook()
    with look.looking():
        look.write_begins(SHARD)
    look.write_ended(SHARD)
    look.note_gone(SHARD)

    assert not any(SHARD in kept for kept in vars(look).values())
    assert look._looks == []
