"""Reads declared objects again where the watch tells too little of them.

kopf has one worker for each object.  While the object waits for its deletion the worker waits with
it, and tells later events only afterwards.  Events of two objects of the same name come from two
workers, in any order.  In both cases the API server is asked.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quorate.wire.schema.resource import API_VERSION, Resource
from quorate_operator.declared.declared_zone import declared
from quorate_operator.declared.deletion import is_held
from quorate_operator.declared.kinds import Key, Kind
from quorate_operator.kube.api import ApiRefused, KubeApi, path_of

_log = logging.getLogger("quorate.controller")

READ_S = 3.0
"""Shortest time between reads of an object whose deletion waits, seconds."""
READS_PER_S = 10.0
"""Reads of objects that wait, per second; beyond READ_S times as many objects, each is read less
often."""

Body = Mapping[str, Any]


class Reread(NamedTuple):
    """A kind that is read again.

    `known`: returns the object of a name as it is known; `seen`, `gone` (with name and uid): called
    with news, as from the watch.
    """

    kind: type[Resource]
    known: Callable[[str], Body | None]
    seen: Callable[[Body], None]
    gone: Callable[[str, str], None]


class Rereads:
    """The objects of one namespace.

    Objects are listed by name: the operator has no right to get a Zone.
    """

    def __init__(self, api: KubeApi, namespace: str, kinds: Mapping[Kind, Reread]) -> None:
        self._api = api
        self._namespace = namespace
        self._kinds = kinds
        self._doubted: dict[Key, asyncio.Event] = {}
        """Names of which two objects were shown; the event is set when it is known which is there.
        """
        self._shown_again: set[Key] = set()
        """Of these, those of which one was shown during the read."""
        self._read_s: dict[str, float] = {}
        """By uid of an object whose deletion waits: when it was read last (loop time)."""

    def doubt(self, key: Key) -> None:
        """Note that another object than the known one may have this name."""
        self._doubted.setdefault(key, asyncio.Event())
        self._shown_again.add(key)

    def is_doubted(self, key: Key) -> bool:
        """Return whether another object than the known one may have this name."""
        return key in self._doubted

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._read_s.pop(uid, None)

    async def settled(self, key: Key) -> None:
        """Return when there is no doubt (any more) about which object has this name."""
        if (settled := self._doubted.get(key)) is not None:
            await settled.wait()

    async def look(self, key: Key, is_waiting: bool) -> None:
        """Read the object if its name is in doubt, or it `is_waiting` for its deletion and was not
        read for READ_S, or longer if many wait.

        Raises the API's errors.  Without the right to list, only the watch tells.
        """
        while key in self._doubted:
            await self._read(key)
        if is_waiting and self._is_due(key):
            try:
                await self._read(key)
            except ApiRefused as refused:
                _log.debug("%s %s/%s: %s", key.kind, self._namespace, key.name, refused)

    async def is_unchanged(self, kind: Kind, body: Body) -> bool:
        """Read an object now; return whether it is still as `body`, in all that users decide.

        Raises the API's errors.
        """
        found = await self._read(Key(kind, str(body["metadata"]["name"])))
        return (
            found is not None
            and declared(found) == declared(body)
            and is_held(found) == is_held(body)
        )

    def _is_due(self, key: Key) -> bool:
        known, now_s = self._kinds[key.kind].known(key.name), asyncio.get_running_loop().time()
        pause_s = max(READ_S, len(self._read_s) / READS_PER_S)
        if known is None or now_s - self._read_s.get(_uid(known), float("-inf")) < pause_s:
            return False
        self._read_s[_uid(known)] = now_s
        return True

    async def _read(self, key: Key) -> Body | None:
        """Read the object of this name, tell what is new, and return it.

        None: there is none, or the watch has shown one meanwhile, which may be newer.
        """
        of = self._kinds[key.kind]
        before = of.known(key.name)
        self._shown_again.discard(key)
        items = self._api.list(path_of(self._namespace, of.kind.plural), name=key.name)
        listed = [item async for item in items]
        found: Body | None = None
        if listed:  # items of a list come without their kind
            found = {**listed[0], "apiVersion": API_VERSION, "kind": of.kind.kind_name()}
        known = of.known(key.name)
        if known is not before or key in self._shown_again:
            return None
        if (settled := self._doubted.pop(key, None)) is not None:
            settled.set()
        if known is not None and (found is None or _uid(found) != _uid(known)):
            where = f"{self._namespace}/{key.name}"
            _log.info("%s %s: the object of uid %s is gone", key.kind, where, _uid(known))
            of.gone(key.name, _uid(known))
        if found is not None:
            of.seen(found)
        return found


def _uid(body: Body) -> str:
    return str(body["metadata"]["uid"])
