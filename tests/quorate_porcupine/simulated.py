"""The simulator's history as operations: what its clients were told, at simulated times."""

from collections.abc import Iterable, Mapping

from quorate.facts.keyspace import key_partition
from quorate_porcupine.operations import Operation
from quorate_sim.clients import Op


def operations_of(history: Iterable[Op], partitions: Mapping[str, int]) -> list[Operation]:
    """Each command as one operation on `zone/key`; `partitions`: their number per zone.

    A flush empties one partition: it becomes one FLUSH on each of its keys.
    """
    ops = list(history)
    keys = sorted({(op.zone, op.key) for op in ops})
    found: list[Operation] = []
    for op in ops:
        if op.kind != "flush":
            found.append(_operation(op, op.key))
            continue
        count = partitions[op.zone]
        flushed = key_partition(op.key, count)
        found += [
            _operation(op, key)
            for zone, key in keys
            if zone == op.zone and key_partition(key, count) == flushed
        ]
    return found


def _operation(op: Op, key: bytes) -> Operation:
    return Operation(
        client=max(op.client, 0),
        kind=op.kind.upper(),
        key=f"{op.zone}/{key.decode()}",
        argument=op.value.decode() if op.kind == "set" else None,
        result=None if op.result is None else op.result.decode(),
        call_ns=op.start_us * 1000,
        end_ns=None if op.end_us is None else op.end_us * 1000,
    )
