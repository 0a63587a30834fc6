"""Reads rows that agents have set aside, and compares them with the present ones."""

from collections.abc import Iterator
from typing import NamedTuple

from quorate.protocol.messages.tools import (
    AskAside,
    AskCopies,
    AskValues,
    Copies,
    RowsAside,
    SetAside,
    Value,
    Values,
)
from quorate_cli.copies.agent_question import Asked, ask_agent
from quorate_cli.terminal.problem import Problem

DELETED = "none"
"""The kind of a key that was deleted, as the command TYPE answers."""


class Rows(NamedTuple):
    """Rows of a partition on one agent: those set aside as `generation`; None: the present ones."""

    agent: Asked
    zone: str
    partition: int
    generation: int | None

    def values(self, key: bytes | None = None) -> Iterator[Value]:
        """Yield them in order of key.  `key`: only this one, however long it is."""
        after: bytes | None = None
        while True:
            question = AskValues(self.zone, self.partition, self.generation, after, key)
            answer = ask_agent(self.agent, question, Values)
            if answer.problem:
                raise Problem(f"{self.agent.where}: {answer.problem}")
            yield from answer.values
            after = answer.next
            if after is None:
                return


class Differing(NamedTuple):
    """A row that is set aside, and the present one of its key; None: there is none."""

    aside: Value
    present: Value | None


def rows_aside(agent: Asked, zone: str) -> list[RowsAside]:
    """Return what an agent has set aside of a zone, in order of partition."""
    found: list[RowsAside] = []
    after: int | None = -1
    while after is not None:
        answer = ask_agent(agent, AskAside(zone, after), SetAside)
        if answer.problem:
            raise Problem(f"{agent.where}: {answer.problem}")
        found += answer.found
        after = answer.next
    return found


def find_primary(agents: list[Asked], zone: str, partition: int) -> Asked:
    """Return the agent that has the partition's primary; raise Problem if none has it."""
    found: list[tuple[int, Asked]] = []
    for agent in agents:
        answer = ask_agent(agent, AskCopies(zone, partition), Copies)
        copies = [each for each in answer.copies if each.replica_index == 0 and each.adopted]
        found += [(each.term, agent) for each in copies]
    if not found:
        raise Problem(
            f"zone {zone}, partition {partition}: no agent has its primary now, so there is nothing"
            " to compare with: see `quorate status`"
        )
    return max(found, key=lambda pair: pair[0])[1]


def find_differing(aside: Rows, present: Rows, key: bytes | None = None) -> Iterator[Differing]:
    """Yield the rows that are set aside and differ from the present ones, in order of key."""
    others = present.values(key)
    other = next(others, None)
    for value in aside.values(key):
        while other is not None and other.key < value.key:
            other = next(others, None)
        same_key = other if other is not None and other.key == value.key else None
        if not _is_same(aside, value, present, same_key):
            yield Differing(value, same_key)


def _is_same(aside: Rows, value: Value, present: Rows, other: Value | None) -> bool:
    if other is None:
        return value.kind == DELETED
    if (value.counter, value.term) == (other.counter, other.term):
        return True  # written before the lines of history parted
    if _fixed(value) != _fixed(other):
        return False
    if value.items is None:  # too long: both are read once more, each alone
        return [each.items for each in aside.values(value.key)] == [
            each.items for each in present.values(value.key)
        ]
    return value.items == other.items


def _fixed(value: Value) -> tuple[str, int, int]:
    return value.kind, value.expires_at, value.bytes
