"""Copies asked for digests while updates are on their way and terms change: equal copies are never
told apart, copies that differ never taken for equal, and a quiet partition is always judged."""

from dataclasses import dataclass, field
from random import Random

import pytest

from quorate.protocol.messages.tools import CopyDigest
from quorate_spark.comparing.compare_digests import DigestsTold, DigestWatch

NODES = ("A", "B", "C")
HISTORIES = 2000
"""Drawn from seeds of their own: a stale mark shows in one of some hundred."""


@dataclass
class ModelCopy:
    """Rows are the fold of `log`; the mark outlives a change of term, as in an agent."""

    log: list[int] = field(default_factory=list)
    term: int = 1
    adopted: bool = True
    damage: str = ""
    mark_at: int = 0
    mark: tuple[int, bytes] = (0, b"")

    def apply(self, update: int) -> None:
        self.log.append(update)
        if len(self.log) == self.mark_at:
            self.mark, self.mark_at = (self.mark_at, self.row_sum()), 0

    def adopt(self, primary: "ModelCopy") -> None:
        """Undo what the new primary has not; the rest comes by and by."""
        common = 0
        while self.log[common : common + 1] == primary.log[common : common + 1] != []:
            common += 1
        del self.log[common:]
        self.term, self.adopted = primary.term, True

    def row_sum(self) -> bytes:
        return f"{self.log}{self.damage}".encode()

    def answer(self, mark: int) -> CopyDigest:
        if mark > len(self.log):
            self.mark_at = mark
        return CopyDigest(0, self.term, self.adopted, len(self.log), 0, self.row_sum(), *self.mark)


class Model:
    """Three copies, their primary, and a number for each update that was ever made."""

    def __init__(self) -> None:
        self.copies = [ModelCopy() for _ in NODES]
        self.primary = 0
        self.updates = 0
        self.watch = DigestWatch(0, NODES)
        self.told: list[DigestsTold] = []

    def step(self, random: Random) -> None:
        """Something happens."""
        kinds = ["write", "arrive", "ask", "ask", "term", "adopt", "stranger"]
        kind = random.choice(kinds)
        index = random.randrange(3)
        copy = self.copies[index]
        match kind:
            case "write":
                for _ in range(random.randint(1, 5)):
                    self.updates += 1
                    self.copies[self.primary].apply(self.updates)
            case "arrive":
                for _ in range(random.randint(1, 5)):
                    self.arrive(copy)
            case "ask":
                self.ask(random)
            case "term":
                self.primary = index
                copy.term = max(each.term for each in self.copies) + 1
                copy.adopted = True
                for other in self.copies:
                    if other is not copy:
                        other.term, other.adopted = copy.term, False
            case "adopt":
                for other in self.copies:
                    if not other.adopted:
                        other.adopt(self.copies[self.primary])
            case _:
                copy.answer(len(copy.log) + random.randint(0, 6))

    def arrive(self, copy: ModelCopy) -> None:
        """The next update that `copy` lacks."""
        primary = self.copies[self.primary]
        if copy.adopted and len(copy.log) < len(primary.log):
            copy.apply(primary.log[len(copy.log)])

    def ask(self, random: Random | None = None) -> None:
        """Every copy, one after the other, something happening in between."""
        for node, copy in zip(NODES, self.copies, strict=True):
            self.watch.take_in(node, copy.answer(self.watch.mark))
            if random is not None and random.random() < 0.5:
                self.updates += 1
                self.copies[self.primary].apply(self.updates)
                self.arrive(copy)
        found = self.watch.judge()
        if found is not None:
            self.told.append(found)
            self.watch = DigestWatch(0, NODES)

    def come_to_rest(self) -> None:
        """All copies catch up."""
        for copy in self.copies:
            if not copy.adopted:
                copy.adopt(self.copies[self.primary])
            while len(copy.log) < len(self.copies[self.primary].log):
                self.arrive(copy)


@pytest.mark.parametrize("damaged", [*NODES, ""])
def test_digests_tell_damage_and_nothing_else(damaged: str) -> None:
    for seed in range(HISTORIES):
        random = Random(seed)
        model = Model()
        for node, copy in zip(NODES, model.copies, strict=True):
            copy.damage = "!" if node == damaged else ""
        for _ in range(random.randint(0, 40)):
            model.step(random)
        model.come_to_rest()
        model.ask()

        assert model.told, seed
        assert {told.agree for told in model.told} == {not damaged}, seed
