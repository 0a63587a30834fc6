"""Chains of resets: after all restart, the partition goes on from its last update.

The two examples of IEP-131, phase 2, with its letters: [A..G], then [E, F, G], then [G].
"""

from collections.abc import Sequence

from quorate_sim.scenario import Scenario

RESET_MS = 1500


class Chain:
    """Seven agents by the letters of the document; the last three lack the last update."""

    def __init__(self) -> None:
        self.story = story = Scenario(7, 7, reset_ms=RESET_MS)
        first = story.primary
        story.written(first, b"k", b"5")
        rest = [name for name in story.row.owners if name != first]
        self.first, self.late = (first, *rest[:3]), tuple(rest[3:])
        story.cut(*self.late)
        story.wait(lambda: not {*self.late} & {*story.row.owners}, "E, F and G are no owners")
        story.written(first, b"k", b"10")
        story.heal()
        story.cut(*self.late, off=self.first)
        story.wait(lambda: all(map(story.is_online, self.late)), "E, F and G are there again")

    def lose(self, *names: str) -> None:
        """End processes; the rest becomes the partition's voters."""
        story = self.story
        before = story.row.reset
        for name in names:
            story.crash(name)
        story.wait(lambda: story.row.reset not in (None, before), "the reset", 60_000)
        story.wait(lambda: bool(story.primary), "the survivor serves")
        there = {name for name, agent in story.cluster.agents.items() if agent.alive}
        story.wait(lambda: {*story.row.owners} == there, f"{there} have copies", 60_000)

    def narrow(self, value: bytes = b"") -> tuple[str, str, str]:
        """Lose A to D, then E and F.  E and F may have an update that G lacks.  Return E, F, G."""
        story = self.story
        self.lose(*self.first)
        story.heal()
        primary = story.primary
        assert story.read(primary, b"k") == b"5"
        other, last = (name for name in self.late if name != primary)
        story.cut(last)
        story.wait(lambda: last not in story.row.owners, "G is no owner")
        if value:
            story.written(primary, b"k", value)
        story.heal()
        story.cut(last, off=(primary, other))
        story.wait(lambda: story.is_online(last), "G is there again")
        self.lose(primary, other)
        story.heal()
        assert story.row.voter_nodes == (last,)
        assert story.row.reset is not None
        assert [len(link.voters) for link in story.row.reset.links] == [7, 3]
        assert story.read(last, b"k") == b"5"
        story.crash(last)
        story.wait(lambda: not story.is_online(last), "all are lost")
        return primary, other, last

    def start_in(self, order: Sequence[str]) -> None:
        """Start processes one after the other."""
        for name in order:
            self.story.start(name)
            self.story.run(300)


def the_second_link_is_waited_for() -> None:
    """Example 2: E and F have an update that G, the last of them, lacks."""
    chain = Chain()
    story = chain.story
    one, two, last = chain.narrow(b"7")
    chain.start_in((*chain.first, last))
    story.run(4 * RESET_MS)
    assert not story.primary  # A to D say nothing of what E, F and G wrote
    story.start(one)
    story.wait(lambda: bool(story.primary), "G and E are a majority of the second link")
    assert story.read(story.primary, b"k") == b"7"
    story.start(two)
    story.come_to_rest()
    assert story.read(story.primary, b"k") == b"7"
