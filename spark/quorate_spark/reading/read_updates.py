"""Reads updates from the log of a copy, piece by piece."""

from collections.abc import Iterator

import msgspec

from quorate.protocol.messages.replication import Update
from quorate.protocol.messages.tools import AskUpdates, UpdatesTold
from quorate_spark.copies import CopySeen
from quorate_spark.reading.agent_link import Cluster, Unreadable
from quorate_spark.reading.read_copies import check_process, check_same_copy, open_link
from quorate_spark.settings import Settings

_decode_update = msgspec.msgpack.Decoder(Update).decode


class LogTooShort(Unreadable):
    """The log of the copy no longer has what is asked for; it has updates from `oldest` on."""

    def __init__(self, message: str, oldest: int) -> None:
        super().__init__(message)
        self.oldest = oldest


def read_updates(
    copy: CopySeen, after: int, upto: int, zone: str, cluster: Cluster, settings: Settings
) -> Iterator[tuple[list[Update], int]]:
    """Yield the updates of a copy above counter `after`, with the counter they reach, to `upto`.

    Each piece was in the log while the copy was still the one that is asked for.  Raises
    LogTooShort, or Unreadable if the copy is another one.
    """
    partition = copy.state.partition
    with open_link(copy.address, cluster, settings) as link:
        check_process(link, copy)
        while after < upto:
            told = link.ask(AskUpdates(zone, partition, after, upto), UpdatesTold)
            if told.problem:
                raise Unreadable(f"partition {partition}: {link.name}: {told.problem}")
            held = f"partition {partition}: the log of {copy.node} has {told.reaches_from + 1} to"
            problem = f"{held} {told.lwm}, and {after + 1} to {upto} are needed"
            if told.reaches_from > after:
                raise LogTooShort(problem, told.reaches_from + 1)
            if told.lwm < upto:
                raise Unreadable(problem)
            reached = upto if told.next is None else told.next
            if reached <= after:
                raise Unreadable(f"partition {partition}: {link.name} tells its log in circles")
            check_same_copy(link, copy, zone)
            yield [_decode_update(raw) for raw in told.updates], reached
            after = reached
