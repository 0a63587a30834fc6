"""Whether a namespace is being deleted: then every object in it is to go, whatever it waits for.

The API server says so when it refuses to create an object there.  Where nothing is created, for
example because a cluster is paused or not led, the Namespace itself is read.
"""

import time

from quorate_operator.kube.api import NAMESPACE_TERMINATING, ApiRefused, KubeApi

LOOK_S = 2.0
"""How often the Namespace is read, at most, while objects wait to be deleted.  It is also read each
time before data is erased."""


class Termination:
    """The end of one namespace."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}"
        self._is_known = False
        self._looked_s = float("-inf")

    def note(self, refused: ApiRefused) -> None:
        """Something was refused in the namespace."""
        self._is_known |= refused.word == NAMESPACE_TERMINATING

    def is_over(self) -> None:
        """No object is left: what comes is of a namespace that was made anew."""
        self._is_known = False
        self._looked_s = float("-inf")

    async def is_under_way(self, *, anew: bool) -> bool:
        """Whether the namespace is being deleted.  Without the right to read it: as far as is
        known from refusals.  `anew`: read it now, for data is about to be erased.  ApiUnclear."""
        now_s = time.monotonic()
        if not self._is_known and (anew or now_s - self._looked_s >= LOOK_S):
            self._looked_s = now_s
            try:
                found = await self._api.get(self._path)
            except ApiRefused as refused:
                self.note(refused)
            else:
                self._is_known = found["metadata"].get("deletionTimestamp") is not None
        return self._is_known
