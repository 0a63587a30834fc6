"""Whether a namespace is being deleted: then every object in it must go, whatever it waits for.

The API server says so when it refuses to create an object there.  If nothing is created, for
example because a cluster is paused or not led, the Namespace itself is read.
"""

import time

from quorate_operator.kube.api import NAMESPACE_TERMINATING, ApiRefused, KubeApi

LOOK_S = 2.0
"""Shortest time between reads of the Namespace while objects wait to be deleted, seconds.  It is
also read each time before data is erased."""


class Termination:
    """Knows whether one namespace is being deleted."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}"
        self._is_known = False
        self._looked_s = float("-inf")

    def note(self, refused: ApiRefused) -> None:
        """Take a refusal of a request in the namespace."""
        self._is_known |= refused.word == NAMESPACE_TERMINATING

    def is_over(self) -> None:
        """Note that no object is left: later objects are of a namespace that was created again."""
        self._is_known = False
        self._looked_s = float("-inf")

    async def is_under_way(self, *, anew: bool) -> bool:
        """Return whether the namespace is being deleted.

        Without the right to read it, only refusals tell.  `anew`: read it now, because data is
        about to be erased.  Raises ApiUnclear.
        """
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
