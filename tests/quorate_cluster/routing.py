"""Which agent is primary of which key, and keys for each, as Redis Cluster clients find it out."""

from typing import Any

import redis

from quorate.facts.keyspace import SLOT_COUNT, key_slot


def ports_of_slots(port: int) -> list[int]:
    """The client port of each slot's primary, as the one that listens on `port` says."""
    with redis.Redis(port=port, socket_timeout=10, decode_responses=True) as client:
        said: Any = client.execute_command("CLUSTER SLOTS")
    found = [0] * SLOT_COUNT
    for first, last, (_host, its_port, *_), *_replicas in said:
        found[first : last + 1] = [int(its_port)] * (last + 1 - first)
    return found


def keys_by_port(port: int, count: int) -> dict[int, list[bytes]]:
    """So many keys of one length by the client port of their primary."""
    ports = ports_of_slots(port)
    found: dict[int, list[bytes]] = {each: [] for each in dict.fromkeys(ports)}
    for number in range(count):
        key = b"key:%012d" % number
        found[ports[key_slot(key)]].append(key)
    return found
