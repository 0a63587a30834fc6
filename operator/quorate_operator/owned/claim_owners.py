"""Sets whether a StorageCluster owns the claims of its managed agents: then they go with it.

This version makes a cluster own claims only once its data is deleted.  An earlier version did so
before, so each cluster is made to own none when it is first led.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from quorate.wire.storage_cluster import StorageCluster
from quorate_operator import names
from quorate_operator.kube.api import ApiRefused, KubeApi
from quorate_operator.owned.agent_names import stateful_set_name
from quorate_operator.owned.apply import PATHS, is_owned
from quorate_operator.owned.children import claim_of
from quorate_operator.owned.volumes import with_its_size

_log = logging.getLogger("quorate.owned")

Json = dict[str, Any]


class ClaimOwners:
    """The claims of the clusters of one namespace."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._path = PATHS["PersistentVolumeClaim"].format(namespace)
        self._owning = asyncio.Lock()
        """Held while owners of claims are written: the last write is the last one requested."""
        self._without: set[str] = set()
        """Uids of clusters that own no claim."""

    def owns_none(self, uid: str) -> bool:
        """Return whether the StorageCluster is known to own no claim.  Any thread may call it."""
        return uid in self._without

    async def set_owned(self, cluster: StorageCluster, owned: bool) -> None:
        """Make the cluster's object own all its claims (`owned`), or none.

        Includes claims of agents that were scaled away and of an earlier cluster of the name.
        Raises ApiRefused, ApiUnclear, MandateLost: some claims may be unchanged.
        """
        if cluster.spec.managed is None:
            return
        chosen = f"{names.LABEL_CLUSTER}={cluster.metadata.name}"
        async with self._owning:
            claims = [each async for each in self._api.list(self._path, chosen)]
            await self._set_owned(cluster, claims, owned)

    async def free_all(self, name: str, uid: str) -> None:
        """Make a cluster that cannot be read own no claim.  Raises as `set_owned` does."""
        async with self._owning:
            claims = self._api.list(self._path, f"{names.LABEL_CLUSTER}={name}")
            for there in [each async for each in claims if is_owned(each, uid)]:
                await self._free_one(there, uid)
            self._without.add(uid)

    async def free(self, cluster: StorageCluster, claims: Sequence[Json]) -> None:
        """Make a cluster own none of its `claims`, once, unless it is being deleted.

        A refusal does not hold up other objects: the next look tries again.
        """
        async with self._owning:
            metadata = cluster.metadata
            if self.owns_none(metadata.uid) or metadata.deletion_timestamp is not None:
                return
            try:
                await self._set_owned(cluster, claims, False)
            except ApiRefused as refused:
                _log.warning("claims of cluster %s: %s", metadata.name, refused)

    async def _set_owned(
        self, cluster: StorageCluster, claims: Sequence[Json], owned: bool
    ) -> None:
        if cluster.spec.managed is None:
            return
        uid, storage = cluster.metadata.uid, cluster.spec.managed.storage
        if owned:
            self._without.discard(uid)
        for there in claims:
            agent = there["metadata"]["labels"].get(names.LABEL_AGENT, "")
            name = there["metadata"]["name"]
            is_copy = name != stateful_set_name(cluster.metadata.name, agent)
            if not agent or is_owned(there, uid) == owned:
                continue
            if not is_copy:
                made = with_its_size(claim_of(cluster, agent, storage, there, owned), there)
                await self._api.apply(f"{self._path}/{name}", made)
            elif not owned:  # a user's copy is never deleted with the cluster
                await self._free_one(there, uid)
        if not owned:
            self._without.add(uid)

    async def _free_one(self, claim: Json, uid: str) -> None:
        """Take this owner from a claim, and leave the rest of it as it is."""
        metadata = claim["metadata"]
        owners = [each for each in metadata["ownerReferences"] if each["uid"] != uid]
        path, revision = f"{self._path}/{metadata['name']}", metadata["resourceVersion"]
        await self._api.set_owners(path, owners, revision)
