"""A turn ends once for all that asked, and a small one waits while more comes."""

from collections.abc import Callable

from quorate_agent.process.turn_end import SMALL_TURN, TurnEnd


class _Loop:
    """An event loop that goes round when told to."""

    def __init__(self, asks_again: int = 0) -> None:
        self.ended = 0
        self._asks_again = asks_again
        self._next: list[Callable[[], None]] = []
        self.turn = TurnEnd(self._next.append, self._end)

    def _end(self) -> None:
        self.ended += 1
        if self.ended <= self._asks_again:
            self.turn.ask()

    def look(self, asks: int = 0) -> None:
        """What was called for happens; then what the sockets bring asks for a turn."""
        due, self._next[:] = self._next[:], []
        for call in due:
            call()
        self.ask(asks)

    def ask(self, times: int) -> None:
        for _ in range(times):
            self.turn.ask()


def test_all_that_ask_have_one_turn() -> None:
    loop = _Loop()
    loop.ask(3)
    loop.look()
    loop.look()

    assert loop.ended == 1
    loop.look()
    assert loop.ended == 1


def test_a_small_turn_waits_while_each_look_brings_more() -> None:
    loop = _Loop()
    loop.ask(1)
    for _ in range(5):
        loop.look(asks=2)
    assert loop.ended == 0

    loop.look()
    loop.look()
    assert loop.ended == 1


def test_a_turn_that_is_large_enough_waits_no_more() -> None:
    loop = _Loop()
    loop.ask(1)
    for _ in range(SMALL_TURN):
        loop.look(asks=1)

    assert loop.ended == 1


def test_a_large_turn_ends_at_the_first_look() -> None:
    loop = _Loop()
    loop.ask(SMALL_TURN)
    loop.look()

    assert loop.ended == 1


def test_what_a_turn_asks_for_at_its_end_has_the_next() -> None:
    loop = _Loop(asks_again=1)
    loop.ask(1)
    for _ in range(4):
        loop.look()

    assert loop.ended == 2
