"""Reading copies: chunks, and every way in which an agent can fail to answer for one."""

import socket
import threading
from collections.abc import Callable
from types import EllipsisType

import pytest

from quorate.protocol.messages import formats
from quorate.protocol.messages.formats import Formats
from quorate.protocol.messages.handshake import Hello, Refused
from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskCopies, AskRows, Copies, CopyRows
from quorate_link.secret import ClusterSecret, draw_secret
from quorate_spark.reading.agent_link import Cluster, Unreadable, parse_addresses
from quorate_spark.reading.read_copies import key_before, read_copies, read_key, read_rows
from quorate_spark.settings import SettingError, Settings
from quorate_spark_fixtures.scripted_agent import Answer
from quorate_spark_fixtures.scripted_zone import QUICK, ScriptedZone, listening

FAST = Settings(1.0, 0.3, 0.3, 0.01, 64)
CLUSTER = Cluster("c", draw_secret().keys("tool"))


def filled() -> ScriptedZone:
    zone = ScriptedZone(replicas=2, partitions=2)
    for index in range(30):
        zone.write(b"key-%02d" % index, b"v" * 10)
    return zone


def read_all(zone: ScriptedZone, agent: int = 0) -> list[bytes]:
    copies = zone.copies
    copy = read_copies("z", copies.agents, zone.cluster, FAST).owned[0][agent]
    return [row[0] for rows in read_rows(copy, "z", zone.cluster, FAST) for row in rows]


def answering(
    asked: type[Message], answer: Callable[[Message], Answer]
) -> Callable[[Message], Answer | EllipsisType]:
    return lambda message: answer(message) if isinstance(message, asked) else ...


def test_all_rows_come_in_key_order_over_many_chunks() -> None:
    with listening(filled()) as zone:
        keys = read_all(zone)

        assert keys == [b"key-%02d" % index for index in range(30)]
        assert sum(isinstance(asked, AskRows) for asked in zone.agents[0].asked) > 5


def test_a_row_larger_than_a_chunk_and_an_empty_key_are_read() -> None:
    zone = ScriptedZone(replicas=1)
    zone.write(b"", b"x")
    zone.write(b"large", b"x" * 1_000_000)
    with listening(zone):
        keys = read_all(zone)

    assert keys == [b"", b"large"]


def test_copies_are_listed_by_partition_and_replica_index() -> None:
    with listening(filled()) as zone:
        zone.copy(0).replica_index, zone.copy(1).replica_index = 1, 0
        zone.copy(1, partition=1).replica_index = -1
        reading = read_copies("z", zone.copies.agents, zone.cluster, FAST)

    assert {p: [c.node for c in copies] for p, copies in reading.owned.items()} == {
        0: ["agent-1", "agent-0"],
        1: ["agent-0"],
    }
    assert [(copy.node, copy.state.partition) for copy in reading.strays] == [("agent-1", 1)]


@pytest.mark.parametrize("key", [b"key-00", b"key-17", b"key-29", b"key-1", b"", b"zzz", b"k\0"])
def test_one_key_is_read_alone(key: bytes) -> None:
    with listening(filled()) as zone:
        copy = read_copies("z", zone.copies.agents, zone.cluster, FAST).owned[0][0]
        row = read_key(copy, key, "z", zone.cluster, FAST)

    assert (row is not None) == (key in zone.copy(0).rows)
    assert row is None or row[0] == key


@pytest.mark.parametrize("key", [b"a", b"\0", b"a\0", b"\0\0", b"b\x01", b"\xff"])
def test_the_bound_before_a_key_is_below_it(key: bytes) -> None:
    bound = key_before(key)

    assert bound is not None
    assert bound < key


def repeated_keys(message: Message) -> Answer:
    return CopyRows("z", 0, None, 30, ((b"secret-b", 1, 3, 0, b""), (b"secret-b", 1, 3, 0, b"")))


def standstill(message: Message) -> Answer:
    assert isinstance(message, AskRows)
    return CopyRows("z", 0, message.after or b"secret-a", 30, ())


def backwards(message: Message) -> Answer:
    assert isinstance(message, AskRows)
    if message.after is None:
        return CopyRows("z", 0, b"secret-b", 30, ((b"secret-b", 1, 3, 0, b""),))
    return CopyRows("z", 0, None, 30, ((b"secret-a", 1, 3, 0, b""),))


@pytest.mark.parametrize(
    ("asked", "answer", "reason"),
    [
        (AskRows, lambda m: None, "agent agent-0 at .* closed the connection during AskRows"),
        (AskRows, lambda m: b"\xff\xff\xff\xff", "sent what is no message after AskRows: frame of"),
        (AskRows, lambda m: b"\0\0\0\1\x00", "sent what is no message after AskRows"),
        (AskRows, lambda m: b"\0\0", "did not answer AskRows within 0.3 s"),
        (AskRows, lambda m: b"", "did not answer AskRows within 0.3 s"),
        (AskRows, lambda m: Refused("busy"), "refused AskRows: busy"),
        (
            AskRows,
            lambda m: Copies("z", "x", ()),
            "answered AskRows with Copies instead of CopyRows",
        ),
        (AskRows, lambda m: CopyRows("z", 0, None, 0, (), "no copy"), "cannot read it: no copy"),
        (AskRows, lambda m: CopyRows("z", 1, None, 30, ()), "asked for z/0 and answered z/1"),
        (AskRows, lambda m: CopyRows("z", 0, None, 7, ()), "went back from LWM 30 to 7"),
        (AskRows, repeated_keys, "rows must come in key order"),
        (AskRows, backwards, "rows must come in key order"),
        (AskRows, standstill, "it must rise"),
        (Hello, lambda m: Refused("wrong cluster"), "refused Hello: wrong cluster"),
        (Hello, lambda m: Hello(2, "agent", "d"), "belongs to cluster d, not c"),
        (Hello, lambda m: Hello(2, "master", "c"), "says it is a master and has proven to be"),
        (AskCopies, lambda m: Copies("z", "x", (), "unknown zone"), "no zone z: unknown zone"),
        (AskCopies, lambda m: Copies("y", "x", ()), "asked for zone z and answered y"),
    ],
)
def test_an_agent_that_does_not_answer_for_its_copy_is_named_with_the_reason(
    asked: type[Message], answer: Callable[[Message], Answer], reason: str
) -> None:
    with listening(filled()) as zone:
        zone.agents[0].on_ask = answering(asked, answer)

        with pytest.raises(Unreadable, match=reason) as told:
            read_all(zone)

    assert "secret" not in str(told.value), "keys may have to be hashed"


def test_a_key_that_is_not_reached_is_not_named() -> None:
    def creep(message: Message) -> Answer:
        assert isinstance(message, AskRows)
        return CopyRows("z", 0, (message.after or b"") + b"\0", 30, ())

    with listening(filled()) as zone:
        copy = read_copies("z", zone.copies.agents, zone.cluster, FAST).owned[0][0]
        zone.agents[0].on_ask = answering(AskRows, creep)

        with pytest.raises(Unreadable, match="more than 64 keys just before one") as told:
            read_key(copy, b"secret", "z", zone.cluster, FAST)

    assert "secr" not in str(told.value)


def test_what_begins_otherwise_than_an_agent_is_not_believed() -> None:
    with listening(filled()) as zone:
        zone.agents[0].hello = Hello(2, "tool", "c")

        with pytest.raises(Unreadable, match="a 'tool' has nothing to say to this tool"):
            read_all(zone)


def test_an_agent_without_a_common_format_refuses_with_both_formats() -> None:
    with listening(filled()) as zone:
        later = formats.SPOKEN.highest + 1
        zone.agents[0].formats = Formats(later, later + 1)

        said = f"this agent speaks format versions {later} to {later + 1}, the tool"
        with pytest.raises(Unreadable, match=said):
            read_all(zone)


def test_a_question_that_the_agents_format_lacks_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoken = formats.SPOKEN.highest
    monkeypatch.setattr(formats, "SINCE", {AskCopies: spoken + 1})
    with (
        listening(filled()) as zone,
        pytest.raises(Unreadable, match=f"format version {spoken}, which has no AskCopies"),
    ):
        read_all(zone)


def test_an_agent_that_does_not_know_the_secret_is_not_believed() -> None:
    with listening(filled()) as zone:
        known = zone.agents[0].secret
        zone.agents[1].secret = ClusterSecret(known.cluster_id, bytes(32))

        with pytest.raises(Unreadable, match="this tool does not prove that it knows the secret"):
            read_all(zone)


def test_an_agent_that_drips_bytes_does_not_hold_the_reader_up() -> None:
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall((1000).to_bytes(4, "big"))
                while not ended.wait(0.05):
                    try:
                        connection.sendall(b"\0")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(Unreadable, match=r"did not answer Hello within 0\.3 s"):
                read_copies("z", [f"127.0.0.1:{listener.getsockname()[1]}"], CLUSTER, FAST)
        finally:
            ended.set()
            thread.join()


def test_a_copy_that_changes_its_owner_while_it_is_read_is_not_a_reading() -> None:
    with listening(filled()) as zone:
        copy = read_copies("z", zone.copies.agents, zone.cluster, FAST).owned[0][0]
        chunks = read_rows(copy, "z", zone.cluster, FAST)
        next(chunks)
        zone.copy(0).version += 1

        with pytest.raises(Unreadable, match="changed its owner or term while it was read"):
            list(chunks)


def test_a_copy_that_is_given_up_while_it_is_read_is_not_a_reading() -> None:
    with listening(filled()) as zone:
        copy = read_copies("z", zone.copies.agents, zone.cluster, FAST).owned[0][0]
        chunks = read_rows(copy, "z", zone.cluster, FAST)
        next(chunks)
        zone.agents[0].on_ask = answering(AskCopies, lambda m: Copies("z", "agent-0", ()))

        with pytest.raises(Unreadable, match="agent-0 gave up the copy"):
            list(chunks)


def test_a_restarted_agent_is_not_taken_for_the_one_that_listed_its_copies() -> None:
    with listening(filled()) as zone:
        copy = read_copies("z", zone.copies.agents, zone.cluster, FAST).owned[0][0]
        zone.agents[0].hello = Hello(2, "agent", "c", "agent-0", "store-agent-0", 2)

        with pytest.raises(Unreadable, match="was restarted or replaced"):
            list(read_rows(copy, "z", zone.cluster, FAST))


def test_an_agent_named_under_two_addresses_is_refused() -> None:
    with listening(filled()) as zone:
        zone.agents[1].hello = zone.agents[0].hello

        with pytest.raises(Unreadable, match="are both agent-0"):
            read_copies("z", zone.copies.agents, zone.cluster, FAST)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "agents is empty"),
        ("localhost", "'localhost' is not an address: write host:port"),
        (":7400", "is not an address"),
        ("a:70000", "is not an address"),
        ("a:1,b:2,a:1", "a:1 is named twice"),
    ],
)
def test_addresses_are_checked_before_anything_is_dialled(text: str, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        parse_addresses(text)


def test_settings_out_of_bounds_are_named() -> None:
    with pytest.raises(SettingError, match="answer_timeout_s is 0: give a number above 0"):
        Settings(answer_timeout_s=0)
    with pytest.raises(SettingError, match="differences_max is 1000, above rechecks_max 500"):
        Settings(differences_max=1000)
    assert QUICK.rechecks_max == Settings().rechecks_max
