"""Executes a plan: each key through the primary of its partition, by compare and set.

1. Find the primary.  If its row is wrong by the plan, its agent is asked to hand over, and asked
   again until the partition is done; the next primary is found.
2. Read the planned row from a copy that has it, and check it against the plan's digest.
3. Ask the primary to write it, if its own row is still the one of the plan.  Repeat that until a
   quorum of the copies has the row.

A key that was written since the plan is left alone.  An interrupted repair has written some keys;
executed again, the plan goes on with the others.
"""

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeVar

import msgspec

from quorate.protocol.messages.tools import HandedOver, HandOver, KeyRepaired, RepairKey
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import TooOld, Unreadable
from quorate_spark.reading.agent_links import AgentLinks
from quorate_spark.reading.read_copies import copies_of, read_key
from quorate_spark.reading.recheck import copy_row
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.repairing.decide import Action, Strategy
from quorate_spark.repairing.plan import PlannedKey
from quorate_spark.settings import Settings

FIRST_POLL_S = 0.005
POLL_S_MAX = 0.3
HANDED_OVER_S = 2.0
"""How often an agent is asked to hand over: it forgets that after 10 s."""
SILENT_S = 10.0
"""An agent that did not answer is left out for so long: it may take seconds not to answer."""

Answer = TypeVar("Answer")


class Done(enum.StrEnum):
    """The outcome of a planned key."""

    REPAIRED = "repaired"
    CHANGED = "changed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    IRREPARABLE = "irreparable"


class KeyDone(msgspec.Struct, frozen=True):
    """One key of the plan, and what became of it; `detail`: why, unless it is repaired."""

    partition: int
    key: str
    key_hex: str
    done: Done
    detail: str = ""


class _Ended(Exception):
    """A key is not repaired."""

    def __init__(self, done: Done, detail: str) -> None:
        super().__init__(detail)
        self.done = done
        self.detail = detail


def execute(
    plan: Sequence[PlannedKey],
    copies: ZoneCopies,
    settings: Settings,
    wait_s: float,
    told: Callable[[str], None] = lambda sentence: None,
) -> Iterator[KeyDone]:
    """Repair the keys of a plan, and yield what became of each.

    `wait_s`: how long one key may take.  Once a key has waited so long for a primary, the next ones
    of its partition wait no more, until there is one: keys of other partitions have their turn.
    `told` gets a sentence about each primary that is to hand over.
    """
    ordered = sorted(plan, key=attrgetter("partition"))
    silent: dict[str, float] = {}
    with AgentLinks(copies.cluster, settings) as links:
        for partition, keys in groupby(ordered, key=attrgetter("partition")):
            of = _Partition(partition, copies, links, settings, wait_s, told, silent)
            yield from of.run(list(keys))


class _Partition:
    """The repair of one partition's keys.

    `_owners`: its copies as last read, by node.  `_off`: the agents that are to hand over -> when
    each was last asked.  `_row`: the planned value of the present key, and its expiry.
    `_is_asked`: a primary was asked to write that, and did not refuse.  `_is_given_up`: a key has
    waited its time for a primary, and none was there since.  `silent`: address -> until when an
    agent is not asked.
    """

    def __init__(
        self,
        partition: int,
        copies: ZoneCopies,
        links: AgentLinks,
        settings: Settings,
        wait_s: float,
        told: Callable[[str], None],
        silent: dict[str, float],
    ) -> None:
        self._partition = partition
        self._copies = copies
        self._links = links
        self._settings = settings
        self._wait_s = wait_s
        self._told = told
        self._silent = silent
        self._owners: dict[str, CopySeen] = {}
        self._off: dict[str, float] = {}
        self._row: tuple[bytes | None, int] | None = None
        self._is_asked = False
        self._is_served = False
        self._is_given_up = False

    def run(self, keys: list[PlannedKey]) -> Iterator[KeyDone]:
        """Repair them; first those for which nothing is handed over."""
        self._find_owners()
        primary = self._primary()
        keys.sort(key=lambda key: primary is None or _is_wrong(key, primary.node))
        for key in keys:
            try:
                self._repair(key)
            except _Ended as end:
                # A primary that was asked may have written it, and answers late or never.
                done = Done.UNKNOWN if end.done is Done.FAILED and self._is_asked else end.done
                yield KeyDone(key.partition, key.key, key.key_hex, done, end.detail)
            else:
                yield KeyDone(key.partition, key.key, key.key_hex, Done.REPAIRED)

    def _repair(self, key: PlannedKey) -> None:
        """Return once a quorum has the planned row.  Raises _Ended."""
        if key.action is Action.IRREPARABLE:
            raise _Ended(Done.IRREPARABLE, key.reason)
        self._off = {node: asked for node, asked in self._off.items() if _is_wrong(key, node)}
        self._row, self._is_asked, self._is_served = None, False, False
        if self._is_given_up:
            self._find_owners()
        began = time.monotonic()
        pause_s = FIRST_POLL_S
        while waits_for := self._step(key):
            if self._is_given_up:
                waited = f"a key before it waited {self._wait_s:g} s"
                raise _Ended(Done.FAILED, f"it waits for {waits_for}; {waited}")
            if time.monotonic() - began > self._wait_s:
                self._is_given_up = not self._is_served
                raise _Ended(
                    Done.FAILED, f"not within {self._wait_s:g} s: it waits for {waits_for}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, POLL_S_MAX)

    def _step(self, key: PlannedKey) -> str:
        """Go one step further; return what is waited for, empty if the key is repaired."""
        self._keep_off()
        primary = self._primary()
        if primary is None:
            self._find_owners()
            return f"a primary of partition {self._partition}"
        if primary.node not in self._off and _is_wrong(key, primary.node):
            self._told(
                f"partition {self._partition}: {primary.node}, whose row of {key.key} is wrong, is"
                " to hand over"
            )
            self._off[primary.node] = 0.0
        if primary.node in self._off:
            self._find_owners()
            return f"another primary than {', '.join(self._off)}"
        expected = key.version_on(primary.node)
        if expected is None:
            raise _Ended(
                Done.FAILED,
                f"its primary is {primary.node} now, which had no copy when the repair was planned:"
                " make another plan",
            )
        if self._row is None:
            self._row = self._read_row(key)
        wanted = RepairKey(
            self._copies.zone,
            self._partition,
            bytes.fromhex(key.key_hex),
            *expected,
            *self._row,
            uid=self._copies.uid,
        )
        answer = self._ask(primary, wanted, KeyRepaired)
        if answer is not None and answer.problem:
            raise _Ended(Done.FAILED, f"{primary.node}: {answer.problem}")
        self._is_asked = True
        if answer is None:
            self._find_owners()
            return f"an answer of {primary.node}"
        self._is_served, self._is_given_up = True, False
        if answer.changed:
            raise _Ended(Done.CHANGED, f"not as it was when planned: {answer.changed}")
        if answer.waits_for:
            self._find_owners()
        return "" if answer.done else answer.waits_for

    def _read_row(self, key: PlannedKey) -> tuple[bytes | None, int]:
        """Return the planned value and its expiry, from a copy that has it.  Raises _Ended."""
        if key.action is Action.REMOVE:
            return None, 0
        problems = []
        for node in key.right:
            if node not in self._owners:
                continue
            copy = self._owners[node]
            try:
                row = read_key(
                    copy,
                    bytes.fromhex(key.key_hex),
                    self._copies.zone,
                    self._copies.cluster,
                    self._settings,
                )
            except Unreadable as error:
                problems.append(str(error))
                continue
            if row is not None and key.is_new_row(copy_row(node, 0, row)):
                return row[4], row[3]
        if problems:
            raise _Ended(Done.FAILED, "; ".join(problems))
        raise _Ended(
            Done.CHANGED,
            f"the planned row is on none of {', '.join(key.right)} any more: it was written since",
        )

    def _primary(self) -> CopySeen | None:
        leading = [
            copy
            for copy in self._owners.values()
            if copy.state.replica_index == 0 and copy.state.adopted
        ]
        return max(leading, key=lambda copy: copy.state.term, default=None)

    def _find_owners(self) -> None:
        """Read which agents own the copies now; one that does not answer is left out."""
        found: dict[str, CopySeen] = {}
        for address in self._copies.agents:
            self._keep_off()  # an agent that does not answer takes its time
            if time.monotonic() < self._silent.get(address, 0.0):
                continue
            try:
                link = self._links.to(address)
                zone, uid = self._copies.zone, self._copies.uid
                for copy in copies_of(link, address, zone, self._partition, uid):
                    if copy.state.partition == self._partition and copy.state.replica_index >= 0:
                        found[copy.node] = copy
            except Unreadable:
                self._links.drop(address)
                self._silent[address] = time.monotonic() + SILENT_S
        self._owners = found

    def _keep_off(self) -> None:
        """Ask again those that are to hand over, before they forget it."""
        now = time.monotonic()
        for node, asked in list(self._off.items()):
            if now - asked < HANDED_OVER_S or node not in self._owners:
                continue
            self._off[node] = now
            wanted = HandOver(self._copies.zone, self._partition)
            answer = self._ask(self._owners[node], wanted, HandedOver)
            if answer is not None and answer.problem:
                raise _Ended(Done.FAILED, f"{node}: {answer.problem}")

    def _ask(
        self, copy: CopySeen, question: RepairKey | HandOver, answer: type[Answer]
    ) -> Answer | None:
        """Return the answer; None if there is none, which leaves open whether it was executed."""
        try:
            return self._links.to(copy.address).ask(question, answer)
        except TooOld as error:
            self._links.drop(copy.address)
            raise _Ended(Done.FAILED, str(error)) from error
        except Unreadable:
            self._links.drop(copy.address)
            return None


def _is_wrong(key: PlannedKey, node: str) -> bool:
    """Return whether clients of `node` would see another row than the planned one.

    Then it should not be primary.  With REMOVE no copy is preferred.
    """
    if key.strategy is Strategy.REMOVE or key.action is Action.IRREPARABLE:
        return False
    if not key.right or node in key.right:
        return False
    # An equal value and expiry under another version need no other primary.
    return not any(copy.node == node and key.is_new_row(copy) for copy in key.copies)
