"""Keeps the watches of declared objects running: one kopf for each place, restarted if it ends.

If one watch is refused, kopf ends as a whole and takes every task of its event loop with it.  So
each place has its own thread, event loop and connections: if a right is missing in one namespace,
all others are still watched.  Kinds of runs that are unknown, or that may not be listed, are left
out: clusters are led without them, such as by an operator that is newer than its CRDs and role.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import kopf

from quorate_operator import names
from quorate_operator.declared.handlers import NEEDED, WATCHED, make_registry, make_settings
from quorate_operator.declared.kinds import RUNS
from quorate_operator.declared.served_namespaces import ServedNamespaces
from quorate_operator.kube.api import ApiRefused, ApiUnclear, KubeApi
from quorate_operator.kube.kinds import known_kinds, unknown_kinds, unusable_kinds
from quorate_operator.kube.scope import place_text
from quorate_operator.kube.traffic import Traffic

_log = logging.getLogger("quorate.watches")
# kopf reports that it does not handle signals in this thread, which is intended.
logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


def _is_no_answer(record: logging.LogRecord) -> bool:
    """Return whether a record is of anything but an answer of the API server that ended kopf.

    `_Place` reports such an answer in one line.
    """
    error = record.exc_info[1] if record.exc_info else None
    return all(each.__name__ != "APIError" for each in type(error).__mro__)


for _part in ("orchestration", "running"):
    logging.getLogger(f"kopf._core.reactor.{_part}").addFilter(_is_no_answer)

AGAIN_S = 1.0
AGAIN_MAX_S = 15.0
"""Longest pause between attempts, and between looks for kinds that were left out, seconds; a right
given back goes unnoticed for so long."""
SILENT_S = 100.0
"""Seconds without a sign of life of a watch until kopf is restarted: it begins one every minute."""
FAILING_S = 150.0
"""Seconds after the last failure until a watch that is still silent counts as stuck."""
STOP_BOUND_S = 10.0


class Watches:
    """The watches of a master.  All methods are called in its event loop's thread."""

    def __init__(
        self,
        served: ServedNamespaces,
        make_api: Callable[[], KubeApi],
        traffic: Traffic,
        on_failed: Callable[[str], None],
    ) -> None:
        """`make_api`: makes one thread's connections.  `on_failed`: called if a thread met a
        defect."""
        self._parts = (served, make_api, traffic, on_failed)
        self._places: list[_Place] = []

    def start(self, places: tuple[str, ...]) -> None:
        """Watch each of these namespaces ("": all of them)."""
        self._places = [_Place(place, *self._parts) for place in places]

    async def stop(self) -> None:
        """End all watches within STOP_BOUND_S.  What they still see must be harmless by now."""
        try:
            async with asyncio.timeout(STOP_BOUND_S):
                await asyncio.gather(*(each.stop() for each in self._places))
        except TimeoutError:
            _log.warning("the watches did not end in %g s", STOP_BOUND_S)

    def problems(self) -> list[str]:
        """Return a sentence for each place that is not watched, or not wholly, with the reason."""
        failures = [each.failure for each in self._places if each.is_failing]
        return failures + [each.lack for each in self._places if each.lack]

    def is_failing(self, place: str) -> bool:
        """Return whether the watches of this place failed lately and have not resumed."""
        return any(each.place == place and each.is_failing for each in self._places)


class _Place:
    """The thread that watches one place."""

    def __init__(
        self,
        place: str,
        served: ServedNamespaces,
        make_api: Callable[[], KubeApi],
        traffic: Traffic,
        on_failed: Callable[[str], None],
    ) -> None:
        self.place = place
        self.failure = ""
        self.lack = ""
        """Which kinds of runs are left out, and why."""
        self._watched: Collection[str] = WATCHED
        self._served = served
        self._make_api = make_api
        self._traffic = traffic
        self._on_failed = on_failed
        self._failed_s = 0.0
        self._ended = asyncio.Event()
        self._leading = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()  # belongs to the thread's event loop
        for plural in WATCHED:
            traffic.watch_seen(place, plural)  # their ages count from here
        begun = threading.Event()
        name = f"watches {place or 'everywhere'}"
        threading.Thread(target=self._run, args=(begun,), name=name, daemon=True).start()
        begun.wait()

    @property
    def is_failing(self) -> bool:
        if not self.failure:
            return False
        ago_s = time.monotonic() - self._failed_s
        return any(FAILING_S > ago_s <= age_s for age_s in self._ages_s())

    def _ages_s(self) -> list[float]:
        ages_s = self._traffic.watch_ages_s()
        return [ages_s.get((self.place, plural), 0.0) for plural in self._watched]

    async def stop(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has just been closed
                self._loop.call_soon_threadsafe(self._stop.set)
        await self._ended.wait()

    # --- in the thread ---------------------------------------------------------------------------

    def _run(self, begun: threading.Event) -> None:
        try:
            asyncio.run(self._keep(begun))
        except Exception as error:
            _log.exception("a defect of the watches")
            why = f"the watches met a defect: {type(error).__name__}: {error}"
            self._leading.call_soon_threadsafe(self._on_failed, why)
        finally:
            begun.set()
            with contextlib.suppress(RuntimeError):  # the process ends
                self._leading.call_soon_threadsafe(self._ended.set)

    async def _keep(self, begun: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        begun.set()
        pause_s = AGAIN_S
        while not self._stop.is_set():
            why = await self._watch()
            if self._stop.is_set():
                break
            if not why:
                continue
            pause_s = min(2 * pause_s, AGAIN_MAX_S) if self.is_failing else AGAIN_S
            self.failure = f"{place_text(self.place)}: declared objects are not watched: {why}"
            self._failed_s = time.monotonic()
            _log.warning("%s; retrying in %g s", self.failure, pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stop.wait()

    async def _watch(self) -> str:
        """Run kopf until it ends; return why it did, "" if there are more kinds to watch now."""
        api, over, regained = self._make_api(), asyncio.Event(), asyncio.Event()
        guards = [asyncio.create_task(self._guard(over))]
        try:
            # kopf looks at its start which kinds there are, and never again.
            known = await known_kinds(api)
            if unknown := unknown_kinds(known, NEEDED):
                return unknown
            left_out = await unusable_kinds(api, self.place, known, RUNS)
            self._leave_out(left_out)
            if left_out:
                regaining = self._regain(api, left_out, regained, over)
                guards.append(asyncio.create_task(regaining))
            await kopf.operator(
                registry=make_registry(
                    self._served, self._leading, api, self._traffic, self.place, self._watched
                ),
                settings=make_settings(),
                clusterwide=not self.place,
                namespaces=[self.place] if self.place else [],
                standalone=True,
                # Otherwise kopf looks up the user's name, and in a pod there is none.
                identity=cast(Any, names.FIELD_MANAGER),
                stop_flag=over,
            )
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            for guard in guards:
                guard.cancel()
            await asyncio.gather(*guards, return_exceptions=True)
            await api.close()
        if regained.is_set():
            return ""
        is_silent = over.is_set() and not self._stop.is_set()
        return f"no sign of life for {SILENT_S:g} s" if is_silent else "kopf has ended"

    def _leave_out(self, kinds: Mapping[str, str]) -> None:
        """Watch no objects of these kinds; the values say why."""
        for plural in WATCHED:
            if plural in kinds:
                self._traffic.watch_left_out(self.place, plural)
            elif plural not in self._watched:
                self._traffic.watch_seen(self.place, plural)  # its age counts from here
        self._watched = [plural for plural in WATCHED if plural not in kinds]
        whys = "; ".join(dict.fromkeys(kinds.values()))
        where, which = place_text(self.place), ", ".join(kinds)
        lack = f"{where}: {which} are not watched, all else is: {whys}" if kinds else ""
        if lack != self.lack:
            _log.warning("%s", lack or f"{where}: all kinds can be watched again")
        self.lack = lack

    async def _regain(
        self, api: KubeApi, left_out: Mapping[str, str], *events: asyncio.Event
    ) -> None:
        """Set the events once one of the kinds that were left out can be watched."""
        missing = left_out
        while missing.keys() == left_out.keys():
            await asyncio.sleep(AGAIN_MAX_S)
            with contextlib.suppress(ApiRefused, ApiUnclear):
                known = await known_kinds(api)
                missing = await unusable_kinds(api, self.place, known, left_out)
        for each in events:
            each.set()

    async def _guard(self, over: asyncio.Event) -> None:
        """Set `over` when this place is to be watched no more, or a watch has been silent."""
        began_s = time.monotonic()
        while not self._stop.is_set():
            since_s = time.monotonic() - began_s
            if any(min(age_s, since_s) > SILENT_S for age_s in self._ages_s()):
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._stop.wait()
        over.set()
