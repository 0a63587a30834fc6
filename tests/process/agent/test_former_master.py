"""What a former master still says on links of before, after another one led, is refused and changes
nothing.

The former master is this test: it knows the secret, the term and the word, and was obeyed.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import get_args

import pytest

from quorate.facts.partition_row import PartitionRow
from quorate.facts.zone import ZoneRecord
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello, RefusalCode, Refused
from quorate.protocol.messages.master import (
    AskInventory,
    EventsTold,
    Freeze,
    Greet,
    MasterPing,
    Members,
    PreparedRow,
    ZoneGone,
    ZoneTable,
)
from quorate.protocol.messages.message import FromMaster, Message
from quorate.wire.frames import FrameReader, encode_frame
from quorate_cluster.agreement import copies_rows, stored_rows
from quorate_cluster.cluster import Cluster
from quorate_cluster.fixtures import StartCluster
from quorate_cluster.processes import Agent
from quorate_cluster.waiting import wait_until
from quorate_link.blocking import receive, shake_hands
from quorate_link.handshake import Handshake
from quorate_link.secret import read_secret

pytestmark = [pytest.mark.process, pytest.mark.timeout(200)]

PARTITIONS = 4
ANSWER_S = 20.0


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Connections that end with the test, however that ends."""
    with ExitStack() as stack:
        yield stack


class FormerMaster:
    """A link that a master of an earlier term made and was obeyed on."""

    def __init__(self, opened: ExitStack, cluster: Cluster, agent: Agent, hello: Hello) -> None:
        address = ("127.0.0.1", agent.peer_port)
        self._connection = opened.enter_context(socket.create_connection(address, ANSWER_S))
        self._reader = FrameReader()
        keys = read_secret(cluster.secret_file).keys("master")
        self._handshake = Handshake(keys, lambda: hello, dialed=True)
        shake_hands(self._connection, self._handshake, time.monotonic() + ANSWER_S)

    @property
    def refused(self) -> Refused | None:
        """Why the agent did not take this master's greeting; None when it did."""
        return self._handshake.refused

    def say(self, *words: Message) -> None:
        """Send them in one piece."""
        self._connection.sendall(b"".join(encode_frame(word) for word in words))

    def first_answer(self) -> Message:
        """The next message of the agent."""
        deadline_s = time.monotonic() + ANSWER_S
        while not (heard := self._reader.feed(receive(self._connection, deadline_s))):
            pass
        return heard[0]

    def last_words(self) -> list[Message]:
        """All that the agent says until it hangs up."""
        deadline_s = time.monotonic() + ANSWER_S
        heard: list[Message] = []
        while data := receive(self._connection, deadline_s):
            heard += self._reader.feed(data)
        return heard


def words_that_would_harm(
    term: int, zone: ZoneRecord, row: PartitionRow, other: PartitionRow
) -> list[Message]:
    """One of each message of a master.  Most of them cost data or service where they are obeyed:
    nobody is a member, the zone is gone, `other` replaces `row`, the primary stops serving."""
    return [
        Members(term, (), 1 << 60),
        ZoneTable(term, zone, (other,)),
        ZoneGone(term, zone.uid),
        MasterPing(term, 1 << 40),
        PreparedRow(term, zone.uid, "former", other),
        Freeze(term, zone.uid, row.partition, "former", row.term),
        AskInventory(term, rows=True),
        EventsTold(term, ()),
        Greet(term, "127.0.0.1", 1),
    ]


def test_words_of_a_master_that_another_followed_are_refused_and_change_nothing(
    start_cluster: StartCluster, opened: ExitStack
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=PARTITIONS)
    cluster.wait_quiet("z")
    client = cluster.client("z")
    for number in range(100):
        client.set(f"key-{number}", f"value-{number}")
    uid = cluster.zone("z")["metadata"]["uid"]
    rows = stored_rows(cluster.folder, uid)
    zone = ZoneRecord(uid, "z", PARTITIONS, 3)
    term = cluster.api.status()["master_term"]
    word = json.loads((cluster.agents["agent-1"].data / "folder.json").read_text())["master_word"]
    master = Hello(FORMAT_VERSION, "master", cluster.name, master_term=term, master_word=word)

    links: list[tuple[Agent, FormerMaster, Message]] = []
    for agent in cluster.agents.values():
        row = next(each for each in rows.values() if each.owners[0] == agent.name)
        names = tuple(name for name in row.replicas if name != agent.name)
        other = PartitionRow(
            row.partition, row.version + 10, row.version + 10, None, (None, *names), row.voters
        )
        for each in words_that_would_harm(term, zone, row, other):
            link = FormerMaster(opened, cluster, agent, master)
            assert link.refused is None
            links.append((agent, link, each))
            link.say(MasterPing(term, 1))
            assert not isinstance(link.first_answer(), Refused)  # it was obeyed until now
    assert {type(each) for _, _, each in links} == set(get_args(FromMaster))

    cluster.operator.kill()
    cluster.operator.start()
    cluster.wait_online()
    cluster.wait_quiet("z")
    newer = cluster.api.status()["master_term"]
    assert newer > term
    for agent in cluster.agents.values():
        wait_until(
            lambda agent=agent: (
                json.loads((agent.data / "folder.json").read_text())["master_term"] == newer
            ),
            "obedience to the new master",
        )
    before = stored_rows(cluster.folder, uid), copies_rows(cluster, "z")

    for _, link, each in links:
        link.say(each, each)
    for agent, link, each in links:
        refusals = [said for said in link.last_words() if isinstance(said, Refused)]
        assert len(refusals) == 1, each
        assert refusals[0].code == RefusalCode.STALE_MASTER
        assert refusals[0].master_term == newer
        assert refusals[0].reason == f"agent {agent.name}: master term {term} is over"
    for agent in cluster.agents.values():
        again = FormerMaster(opened, cluster, agent, master)
        assert again.refused is not None
        assert again.refused.code == RefusalCode.STALE_MASTER
        assert again.refused.master_term == newer
        assert f"a master of term {term} is refused: term {newer} leads" in agent.log.read_text()

    # The new master was told nothing new, and every copy is as it was.
    cluster.wait_quiet("z")
    assert (stored_rows(cluster.folder, uid), copies_rows(cluster, "z")) == before
    assert cluster.api.status()["master_term"] == newer
    assert [client.get(f"key-{number}") for number in range(100)] == [
        f"value-{number}".encode() for number in range(100)
    ]
