"""A filling copy asks again when no answer comes, but leaves answers the time to get through."""

from itertools import pairwise

from quorate.facts.lineage import EMPTY_LINEAGE, Entry
from quorate.facts.topology import Holder
from quorate.protocol.copies.copy import Copy
from quorate.protocol.copies.fill import PATIENCE_MS_MAX, Fill
from quorate.protocol.settings import ProtocolSettings
from quorate_agent.storage.memory import MemoryStorage

SETTINGS = ProtocolSettings(retry_ms=500)


def _fill() -> Fill:
    copy = Copy(0, MemoryStorage(0))
    copy.promise(2, Holder("a", "store-a", 1))
    return Fill(copy, EMPTY_LINEAGE.appended(Entry(2, 1)), 5, ["a"], SETTINGS)


def _asks(fill: Fill, upto_ms: int) -> list[int]:
    """When it asked, looked at every 100 ms."""
    return [at for at in range(0, upto_ms, 100) if fill.ask("zone", at)]


def test_the_wait_for_an_answer_doubles() -> None:
    asked = _asks(_fill(), 40_000)

    assert asked[:5] == [0, 500, 1500, 3500, 7500]
    assert {b - a for a, b in pairwise(asked[5:])} == {PATIENCE_MS_MAX}


def test_after_an_answer_it_asks_at_once_and_is_as_eager_as_at_first() -> None:
    fill = _fill()
    _asks(fill, 4_000)

    fill.answered()

    assert fill.ask("zone", 4_000)
    assert not fill.ask("zone", 4_400)
    assert fill.ask("zone", 4_500)
