"""Objects of the metastore that could not be read, and that somebody has deleted since."""

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import Conflict, NodeKey
from quorate.wire.schema.resource import API_VERSION
from quorate_loopback.memory_api import MemoryApi
from quorate_operator.metastores.kubernetes import KubernetesMetastore

PATH = f"/apis/{API_VERSION}/namespaces/default/storagenodes/main.agent-1"
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
