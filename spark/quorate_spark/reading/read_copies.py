"""Reads the copies of a zone, and the rows of each copy, from their agents.

A reading is whole, or it raises Unreadable with the reason, which names no key: whoever asked for
hashed keys reads it, too.  Rows of a copy come in key order, chunk by chunk.  After the last chunk
the copy must still be the one that was asked: same process, replica index, row version and term,
and an LWM that did not go back.
"""

from collections.abc import Iterator, Sequence

from quorate.protocol.messages.tools import (
    AskCopies,
    AskRows,
    Copies,
    CopyColumns,
    CopyRows,
    CopyState,
)
from quorate_spark.copies import AgentTimes, CopySeen, Reading
from quorate_spark.reading.agent_link import AgentLink, Cluster, Unreadable
from quorate_spark.settings import Settings

StoredRow = tuple[bytes, int, int, int, bytes | None]
"""(key, counter, term, expires_at, value) as in CopyRows; value None: a tombstone."""

RECHECK_READS_MAX = 64


def open_link(address: str, cluster: Cluster, settings: Settings) -> AgentLink:
    """Open a connection to the agent at `address`, whose readings have the settings' limit."""
    waits_s = settings.connect_timeout_s, settings.answer_timeout_s
    return AgentLink(address, cluster, *waits_s, settings.bytes_per_s)


def read_copies(zone: str, agents: Sequence[str], cluster: Cluster, settings: Settings) -> Reading:
    """Ask every agent for its copies.  Raises Unreadable if one does not answer for the zone."""
    owned: dict[int, list[CopySeen]] = {}
    strays: list[CopySeen] = []
    address_of: dict[str, str] = {}
    partitions, uids = set[int](), set[str]()
    times: dict[str, AgentTimes] = {}
    for address in agents:
        with open_link(address, cluster, settings) as link:
            node = link.agent.node
            if node in address_of:
                raise Unreadable(
                    f"agents: {address_of[node]} and {address} are both {node}: name every agent"
                    " once"
                )
            address_of[node] = address
            answer = _ask_copies(link, zone, None)
            partitions.add(answer.partitions)
            uids.add(answer.uid)
            if len(answer.times) >= 2:
                reads, writes = map(dict, answer.times[:2])
                times[node] = AgentTimes(link.agent.store, link.agent.incarnation, reads, writes)
            for copy in _seen(link, address, answer):
                if copy.state.replica_index < 0:
                    strays.append(copy)
                else:
                    owned.setdefault(copy.state.partition, []).append(copy)
    by_index = {
        partition: tuple(sorted(copies, key=lambda c: (c.state.replica_index, c.node)))
        for partition, copies in sorted(owned.items())
    }
    nodes = tuple(sorted(address_of))
    return Reading(by_index, tuple(strays), nodes, _one(partitions), frozenset(uids), times)


def read_answering(
    zone: str, agents: Sequence[str], cluster: Cluster, settings: Settings
) -> Reading:
    """Ask the agents for their copies, and leave out those that do not answer for the zone.

    Raises Unreadable if none does.
    """
    readings: list[Reading] = []
    problems: list[str] = []
    for address in agents:
        try:
            readings.append(read_copies(zone, (address,), cluster, settings))
        except Unreadable as error:
            problems.append(str(error))
    if not readings:
        raise Unreadable(problems[0])
    owned: dict[int, list[CopySeen]] = {}
    for reading in readings:
        for partition, copies in reading.owned.items():
            owned.setdefault(partition, []).extend(copies)
    return Reading(
        {
            partition: tuple(sorted(copies, key=lambda c: (c.state.replica_index, c.node)))
            for partition, copies in sorted(owned.items())
        },
        tuple(stray for reading in readings for stray in reading.strays),
        tuple(sorted({node for reading in readings for node in reading.nodes})),
        _one({reading.partitions for reading in readings}),
        frozenset[str]().union(*(reading.uids for reading in readings)),
    )


def _one(partitions: set[int]) -> int:
    """Return what agents say, if they do and all say the same; else 0."""
    told = partitions - {0}
    return told.pop() if len(told) == 1 else 0


def read_rows(
    copy: CopySeen, zone: str, cluster: Cluster, settings: Settings, buckets: tuple[int, ...] = ()
) -> Iterator[list[StoredRow]]:
    """Yield the copy's rows in key order, in chunks; with `buckets`, only rows of these.

    Raises Unreadable unless all of them were read.
    """
    with open_link(copy.address, cluster, settings) as link:
        check_process(link, copy)
        for rows, _ in rows_from(link, copy, zone, settings, None, copy.state.lwm, buckets):
            yield rows
        check_same_copy(link, copy, zone)


def rows_from(
    link: AgentLink,
    copy: CopySeen,
    zone: str,
    settings: Settings,
    after: bytes | None,
    lwm: int,
    buckets: tuple[int, ...] = (),
) -> Iterator[tuple[list[StoredRow], int]]:
    """Yield the copy's rows with key > after, chunk by chunk, and the LWM that it then had.

    Raises Unreadable if that is below the one before, of which `lwm` is the first.
    """
    partition = copy.state.partition
    while True:
        answer = _ask_rows(link, zone, partition, after, settings.chunk_bytes, buckets)
        _check_lwm(copy, lwm, answer)
        lwm = answer.lwm
        yield list(answer.rows), lwm
        if answer.next is None:
            return
        after = answer.next


def read_key(
    copy: CopySeen, key: bytes, zone: str, cluster: Cluster, settings: Settings
) -> StoredRow | None:
    """Return the copy's row of one key, even a tombstone; None if it has none."""
    with open_link(copy.address, cluster, settings) as link:
        return read_key_from(link, copy, key, zone)


def read_key_from(link: AgentLink, copy: CopySeen, key: bytes, zone: str) -> StoredRow | None:
    """Return the same over a link that is open."""
    partition = copy.state.partition
    check_process(link, copy)
    after = key_before(key)
    for _ in range(RECHECK_READS_MAX):
        answer = _ask_rows(link, zone, partition, after, 1)
        for row in answer.rows:
            if row[0] == key:
                return row
            if row[0] > key:
                return None
        if answer.next is None or answer.next >= key:
            return None
        after = answer.next
    raise Unreadable(
        f"partition {partition}: {copy.node} has more than {RECHECK_READS_MAX} keys just before one"
        " that is read again"
    )


def key_before(key: bytes) -> bytes | None:
    """Return a bound below `key` with almost no keys between; None: the start of all keys."""
    if not key:
        return None
    if key[-1] == 0:
        return key[:-1]
    return key[:-1] + bytes([key[-1] - 1]) + b"\xff" * 32


def copies_of(
    link: AgentLink, address: str, zone: str, partition: int | None = None, uid: str = ""
) -> Iterator[CopySeen]:
    """Yield the agent's copies, of all partitions or of one.  Raises Unreadable.

    `uid`: if given, there are none if the agent tells that its zone of this name is another one.
    """
    answer = _ask_copies(link, zone, partition)
    if not uid or answer.uid in ("", uid):
        yield from _seen(link, address, answer)


def _ask_copies(link: AgentLink, zone: str, partition: int | None) -> Copies:
    answer = link.ask(AskCopies(zone, partition), Copies)
    if answer.problem:
        raise Unreadable(f"{link.name} has no zone {zone}: {answer.problem}")
    if answer.zone_name != zone:
        raise Unreadable(f"{link.name} was asked for zone {zone} and answered {answer.zone_name}")
    return answer


def _seen(link: AgentLink, address: str, answer: Copies) -> Iterator[CopySeen]:
    agent = link.agent
    for state in answer.copies:
        yield CopySeen(address, agent.node, agent.store, agent.incarnation, state)


def _ask_rows(
    link: AgentLink,
    zone: str,
    partition: int,
    after: bytes | None,
    bytes_max: int,
    buckets: tuple[int, ...] = (),
) -> CopyRows:
    """Return one chunk, checked: of this partition, keys rising and beyond `after`."""
    answer = link.ask(AskRows(zone, partition, after, bytes_max, buckets), CopyRows)
    _check_answer(link, zone, partition, answer)
    last = after
    for row in answer.rows:
        if last is not None and row[0] <= last:
            raise Unreadable(
                f"partition {partition}: {link.name} answered a key after one that is not below it:"
                " rows must come in key order"
            )
        last = row[0]
    if answer.next is not None and (
        (last is not None and answer.next < last) or answer.next == after
    ):
        raise Unreadable(
            f"partition {partition}: {link.name} answered a next position that is not beyond the"
            " last: it must rise"
        )
    return answer


def _check_answer(
    link: AgentLink, zone: str, partition: int, answer: CopyRows | CopyColumns
) -> None:
    if answer.problem:
        raise Unreadable(f"partition {partition}: {link.name} cannot read it: {answer.problem}")
    if (answer.zone_name, answer.partition) != (zone, partition):
        raise Unreadable(
            f"{link.name} was asked for {zone}/{partition} and answered"
            f" {answer.zone_name}/{answer.partition}"
        )


def check_place(
    link: AgentLink, copy: CopySeen, zone: str, lwm: int, answer: CopyRows | CopyColumns
) -> None:
    """Raise Unreadable unless the answer is of this copy, whose LWM did not go back."""
    _check_answer(link, zone, copy.state.partition, answer)
    _check_lwm(copy, lwm, answer)


def _check_lwm(copy: CopySeen, lwm: int, answer: CopyRows | CopyColumns) -> None:
    if answer.lwm < lwm:
        raise Unreadable(
            f"partition {copy.state.partition}: the copy on {copy.node} went back from LWM {lwm} to"
            f" {answer.lwm} while it was read"
        )


def check_process(link: AgentLink, copy: CopySeen) -> None:
    """Raise Unreadable unless `link` leads to the process that answered for `copy`."""
    agent = link.agent
    found = (agent.node, agent.store, agent.incarnation)
    if found != (copy.node, copy.store, copy.incarnation):
        raise Unreadable(
            f"partition {copy.state.partition}: {copy.node} at {copy.address} was restarted or"
            " replaced while its copies were read"
        )


def check_same_copy(link: AgentLink, copy: CopySeen, zone: str) -> CopySeen:
    """Return the copy as it is now.

    Raises Unreadable unless it still has its owner, row version, term and process.
    """
    partition = copy.state.partition
    for found in copies_of(link, copy.address, zone, partition):
        if found.state.partition != partition:
            continue
        if found.owner_facts == copy.owner_facts:
            return found
        raise Unreadable(
            f"partition {partition}: the copy on {copy.node} changed its owner or term while it"
            f" was read: {_place(copy.state)}, then {_place(found.state)}"
        )
    raise Unreadable(f"partition {partition}: {copy.node} gave up the copy while it was read")


def _place(state: CopyState) -> str:
    return f"replica {state.replica_index} of row version {state.version} in term {state.term}"
