"""A master's term that cannot have been counted is not believed, and what could have been is."""

import pytest

from quorate.facts.time import Now
from quorate.facts.zone import ZoneRecord
from quorate.protocol.agent.agent import AgentCore
from quorate.protocol.agent.masterships import RECOVERY_TERMS, TERMS_BELIEVED, why_not_believed
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.protocol.messages.master import MasterPing, ZoneGone
from quorate.protocol.settings import DEFAULTS
from quorate.protocol.storage import Storage, ZoneRefused

NOW = Now(0, 0)


class Store:
    """Remembers which masterships were obeyed, and which zones were removed."""

    def __init__(self) -> None:
        self.terms: list[int] = []
        self.removed: list[str] = []

    def open_zone(self, record: ZoneRecord) -> Storage:
        raise ZoneRefused("none")

    def keep_zone(self, record: ZoneRecord) -> bool:
        return True

    def kept_zones(self) -> list[ZoneRecord]:
        return []

    def remove_zone(self, uid: str) -> bool:
        self.removed.append(uid)
        return True

    def raise_master_term(self, term: int, word: str) -> None:
        self.terms.append(term)


def master(term: int) -> Hello:
    return Hello(FORMAT_VERSION, "master", "main", master_term=term, master_word=f"word-{term}")


def agent(store: Store, known: int, heard: int = 0) -> AgentCore:
    hello = Hello(FORMAT_VERSION, "agent", "main", "a", "store", 1, known)
    return AgentCore(hello, store, DEFAULTS, NOW, heard)


@pytest.mark.parametrize(
    ("known", "term", "is_believed"),
    [
        (7, 8, True),
        (7, 7 + TERMS_BELIEVED, True),
        (7, 8 + TERMS_BELIEVED, False),
        (7, 10**6, False),
        (0, 10**6, True),  # its first master: it has heard of none
    ],
)
def test_a_term_that_was_not_counted_one_by_one_is_not_believed(
    known: int, term: int, is_believed: bool
) -> None:
    store = Store()
    core = agent(store, known)

    assert core.master_up(master(term)) == is_believed
    assert core.receive_from_master(MasterPing(term, 1), NOW) == is_believed
    assert store.terms == ([term] if is_believed else [])
    assert core.master_term == (term if is_believed else known)


def test_a_message_of_a_term_that_is_not_believed_changes_nothing() -> None:
    store = Store()
    core = agent(store, 7)
    assert core.master_up(master(8))

    assert not core.receive_from_master(ZoneGone(10**6, "uid"), NOW)
    assert core.receive_from_master(MasterPing(8, 1), NOW)
    assert store.terms == [8]
    assert store.removed == []


def test_who_was_away_for_long_believes_what_other_agents_have_obeyed() -> None:
    store = Store()
    core = agent(store, 7)
    assert not core.master_up(master(5_000))

    core.peer_up(Hello(FORMAT_VERSION, "agent", "main", "b", "s", 1, 4_999), NOW)

    assert core.master_up(master(5_000))
    assert core.receive_from_master(MasterPing(5_000, 1), NOW)
    assert store.terms == [5_000]


def test_a_person_may_vouch_for_a_term() -> None:
    assert agent(Store(), 7, heard=5_000).master_up(master(5_001))


def test_the_sentence_names_both_numbers_and_the_way_out() -> None:
    said = why_not_believed(7, 10**6)

    assert "master term 1000000 is not believed: it is more than 1000 above 7" in said
    assert "start an agent that has obeyed it" in said
    assert "start this agent once with --believe-term 1000000" in said
    assert "restore the counter of the operator's metastore" in said
    assert "master.term in the StorageCluster's status" in said


def test_a_lost_metastore_goes_on_within_what_is_believed() -> None:
    """Also for an agent that was away while others obeyed some masterships more."""
    assert RECOVERY_TERMS + 100 < TERMS_BELIEVED
