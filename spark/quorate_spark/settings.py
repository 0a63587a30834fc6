"""Limits of a validation's time and size."""

from dataclasses import dataclass

from quorate.facts.errors import QuorateError
from quorate.facts.read_limit import MIB, MIB_PER_SECOND_MAX


class SettingError(QuorateError):
    """A setting is out of its bounds; the message names the setting, the value and the way out."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of one validation; times are in seconds.

    `connect_timeout_s`: for an agent to accept a connection.  `answer_timeout_s`: for an agent to
    answer one question; enough for a slow disk to read a chunk.  `settle_timeout_s`: for copies
    that are behind to catch up, while their counters are read again; before that, for all agents to
    answer.  A copy whose LWM stands still for half of it counts as differing, so half must be well
    above the time in which a restarted agent is repaired.  `settle_poll_s`: between two such
    readings.  `chunk_bytes`: bytes asked of an agent at once (one row may be larger).
    `passes_max`: how often rows are read again if ownership changed meanwhile.
    `rechecks_max`: how many differing keys are read again to confirm them.
    `differences_max`: how many of them a report lists; the total is always given.
    `max_mib_per_second_per_agent`: how much is read of one agent at most, by all paced readers
    together; None: no limit.  `idle_s`: in mode idle, between the first reading of counters and the
    last one at least.
    """

    connect_timeout_s: float = 5.0
    answer_timeout_s: float = 30.0
    settle_timeout_s: float = 15.0
    settle_poll_s: float = 0.2
    chunk_bytes: int = 2 * 1024 * 1024
    passes_max: int = 3
    rechecks_max: int = 500
    differences_max: int = 100
    max_mib_per_second_per_agent: int | None = None
    idle_s: float = 2.0

    @property
    def bytes_per_s(self) -> int | None:
        """The limit for one agent in bytes per second; None: there is none."""
        limit = self.max_mib_per_second_per_agent
        return None if limit is None else limit * MIB

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise SettingError(f"{name} is {value}: give a number above 0")
        limit = self.max_mib_per_second_per_agent
        if limit is not None and limit > MIB_PER_SECOND_MAX:
            raise SettingError(
                f"max_mib_per_second_per_agent is {limit}: give a number up to"
                f" {MIB_PER_SECOND_MAX}, or leave it out"
            )
        if self.differences_max > self.rechecks_max:
            raise SettingError(
                f"differences_max is {self.differences_max}, above rechecks_max"
                f" {self.rechecks_max}: only what was read again is listed, so raise rechecks_max"
            )
