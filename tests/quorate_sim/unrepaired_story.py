"""The story of a copy that has promised a term and not yet adopted it."""

from quorate.protocol.messages.transfer import FetchKeys, Unavailable
from quorate_sim.scenario import Scenario


def a_copy_supplies_rows_only_of_a_term_it_adopted() -> None:
    """A former primary, with an update that was never answered, is asked for that row."""
    story = Scenario()
    old = story.primary
    story.written(old, b"k", b"0")
    story.cut(old)
    story.write(old, b"k", b"never answered")
    new = story.wait_for_primary(old)
    story.written(new, b"j", b"1")
    copy = story.copy(old)
    term = story.row.term
    story.heal()
    story.wait(lambda: copy.promise_term == term and not copy.adopted, "promised", step_ms=1)
    zone = story.zone(old)
    zone.receive(new, FetchKeys("zone", 0, term, (b"k",), True), story.agent(old).now())
    reply = zone.out.at_once[-1][1]
    is_refused = isinstance(reply, Unavailable)
    assert is_refused, f"{old} has not adopted term {term} and supplies a row: {reply}"
    story.come_to_rest()
    assert story.read(story.wait_for_primary(), b"k") == b"0"
