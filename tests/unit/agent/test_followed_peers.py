"""Which links to other agents are dropped when the registry changes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate_agent.process.peers import Peers


class _Peer:
    """A dialed member; what was done with it."""

    def __init__(self, host: str, port: int, hello: Hello) -> None:
        self.address = (host, port)
        self.link: Any = SimpleNamespace(peer_hello=hello)
        self.dropped: list[str] = []

    def move(self, host: str, port: int) -> None:
        if (host, port) != self.address:
            self.address = (host, port)
            self.redial("moved")

    def redial(self, why: str) -> None:
        self.dropped.append(why)
        self.link = None


def _hello(store: str = "s", incarnation: int = 3) -> Hello:
    return Hello(FORMAT_VERSION, "agent", "main", "b", store, incarnation, process="word")


def _record(
    store: str = "s", incarnation: int = 3, host: str = "b.main", process: str = "word"
) -> NodeRecord:
    return NodeRecord("b", store, incarnation, host, 7100, host, process=process)


@pytest.mark.parametrize(
    ("record", "is_dropped"),
    [
        (_record(), False),
        (_record(incarnation=4), True),
        (_record(incarnation=2), False),  # of the process that is linked the master tells soon
        (_record(store="t", incarnation=1), True),
        (_record(process="of the original"), True),  # linked is one over a copied folder
        (_record(incarnation=2, process="former"), False),
        (_record(host="10.0.0.8"), True),
    ],
)
def test_a_link_to_an_earlier_process_than_the_registered_one_is_dropped(
    record: NodeRecord, is_dropped: bool
) -> None:
    made: list[_Peer] = []

    def dial(host: str, port: int, node: str, accept: object) -> _Peer:
        made.append(_Peer(host, port, _hello()))
        return made[-1]

    links = Peers("a", cast(Any, SimpleNamespace(dial=dial)))
    links.dial({"a": NodeRecord("a", "x", 1, "a", 1, "a"), "b": _record()})

    links.dial({"b": record})

    (peer,) = made
    assert bool(peer.dropped) == is_dropped == (not links.is_up("b"))
    assert peer.address == (record.host, 7100)
