"""A scripted zone whose primary repairs keys, and copies of it that are damaged."""

from functools import partial
from types import EllipsisType

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import HandedOver, HandOver, KeyRepaired, RepairKey
from quorate_spark_fixtures.scripted_agent import ScriptedAgent
from quorate_spark_fixtures.scripted_zone import ScriptedZone


class RepairedZone(ScriptedZone):
    """Its primary writes what it is asked to; one that is to hand over does so."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: dict[bytes, int] = {}
        """How often the primary says that it waits for a quorum, by key."""
        for index, agent in enumerate(self.agents):
            agent.on_ask = partial(self._on_ask, index, agent)

    def _on_ask(
        self, index: int, agent: ScriptedAgent, message: Message
    ) -> Message | EllipsisType | None:
        if isinstance(message, HandOver):
            if agent.copies[0].replica_index == 0:
                other = self.copy((index + 1) % 3)
                other.replica_index, agent.copies[0].replica_index = 0, other.replica_index
            return HandedOver(True)
        if not isinstance(message, RepairKey):
            return ...
        copy, key = agent.copies[message.partition], message.key
        if copy.replica_index:
            return KeyRepaired(waits_for="its primary")
        row = copy.rows.get(key)
        if (row[:2] if row is not None else (copy.lwm, 0)) == (message.counter, message.term):
            self.write(key, message.value)
            row = copy.rows[key]
        elif row is None or row[3] != message.value:
            return KeyRepaired(changed="it is written with another counter")
        left = self.waits[key] = self.waits.get(key, 1) - 1
        if left >= 0:
            return KeyRepaired(row[0], row[1], waits_for="a quorum of the copies")
        return KeyRepaired(row[0], row[1], done=True)

    def asked(self, kind: type[Message]) -> list[tuple[str, Message]]:
        """The questions of this kind, with the agents that were asked."""
        return [(a.name, m) for a in self.agents for m in a.asked if isinstance(m, kind)]


def damage(zone: ScriptedZone, agent: int, key: bytes, value: bytes | None = b"wrong") -> None:
    """Change a row of one copy behind the others' backs; None: it is gone."""
    rows = zone.copy(agent).rows
    if value is None:
        del rows[key]
    else:
        rows[key] = (*rows[key][:3], value)
