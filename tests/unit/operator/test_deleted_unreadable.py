"""Objects of the metastore that could not be read: deleted by somebody else, or by their master."""

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import Conflict, Key, NodeKey, ZoneKey
from quorate.wire.schema.resource import API_VERSION
from quorate_loopback.memory_api import MemoryApi
from quorate_operator.metastores.kubernetes import KubernetesMetastore

PATH = f"/apis/{API_VERSION}/namespaces/default/storagenodes/main.agent-1"
TABLES = f"/apis/{API_VERSION}/namespaces/default/partitiontables"
UID = "0b54ad4c-7d1c-4f35-9a7e-5a4f5ce30f01"
KEY = NodeKey("agent-1")
RECORD = NodeRecord("agent-1", "store", 1, "127.0.0.1", 7100, "127.0.0.1")


@pytest.mark.parametrize("is_healed", [False, True])
async def test_it_is_written_again(is_healed: bool) -> None:
    api = MemoryApi()
    metadata = {"name": "main.agent-1", "labels": {"quorate.io/cluster": "main"}}
    api.put(PATH, {"metadata": metadata, "spec": {"bad": 1}})
    metastore = KubernetesMetastore(api, "default", "main")
    await metastore.load()
    if is_healed:
        await metastore.write(KEY, RECORD, None)
    del api.objects[PATH]

    if not is_healed:
        with pytest.raises(Conflict):  # as it is thought to be there
            await metastore.write(KEY, RECORD, None)
        assert await metastore.read(KEY) is None
    revision = await metastore.write(KEY, RECORD, None)

    found = await metastore.read(KEY)
    assert found is not None
    assert (found.value, found.revision) == (RECORD, revision)


@pytest.mark.parametrize(
    ("key", "path"), [(KEY, PATH), (ZoneKey(UID), f"{TABLES}/{UID}-head")], ids=["node", "head"]
)
async def test_what_cannot_be_read_can_be_deleted(key: Key, path: str) -> None:
    api = MemoryApi()
    name = path.rpartition("/")[2]
    metadata = {"name": name, "labels": {"quorate.io/cluster": "main"}}
    api.put(path, {"metadata": metadata, "spec": {"bad": 1}})
    metastore = KubernetesMetastore(api, "default", "main")
    assert await metastore.load() == {}

    await metastore.write(key, None, None)

    assert path not in api.objects
    requests = len(api.requests)
    await metastore.write(key, None, None)
    assert len(api.requests) == requests, "it is known to be gone"
