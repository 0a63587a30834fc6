"""A row that is made wrong behind its agent differs in its value, and in nothing else."""

from pathlib import Path

from quorate.facts.keyspace import key_partition
from quorate.protocol.storage import Row
from quorate_agent.storage.rocks import RocksStorage
from quorate_nodes.release.damage import damage_row

UID, PARTITIONS, GENERATION = "zone-uid", 4, 3
KEYS = [b"key-%d" % number for number in range(20)]
DAMAGED = KEYS[7]


def test_the_damaged_row_has_another_value_and_the_same_version(tmp_path: Path) -> None:
    folder = tmp_path / "zones" / UID
    storage = RocksStorage(folder)
    for counter, key in enumerate(KEYS, 1):
        space = storage.space(key_partition(key, PARTITIONS), GENERATION)
        space.put(key, Row(counter, 2, 0, b"value"))
    storage.commit()
    storage.close()

    damage_row(tmp_path, UID, PARTITIONS, DAMAGED)

    storage = RocksStorage(folder)
    found = {
        key: storage.space(key_partition(key, PARTITIONS), GENERATION).get(key) for key in KEYS
    }
    storage.close()
    values = {key: b"valud" if key == DAMAGED else b"value" for key in KEYS}
    assert found == {key: Row(counter, 2, 0, values[key]) for counter, key in enumerate(KEYS, 1)}
