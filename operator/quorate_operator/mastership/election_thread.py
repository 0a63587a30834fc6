"""The election on its own thread, with its own event loop and connections to the API server.

So the lease is renewed in time even if the master's loop is busy.  The mandate is read across
threads: one attribute and the clock.  If the master's loop has not run for STALLED_S, the lease is
no longer renewed: the thread must not keep a stalled master in office.
"""

import asyncio
import contextlib
import logging
import threading

from prometheus_client import Counter

from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.traffic import Traffic
from quorate_operator.mastership.election import ElectionSettings
from quorate_operator.mastership.elector import Elector
from quorate_operator.process.loop_watch import LoopWatch

_log = logging.getLogger("quorate.elector")

STALLED_S = 30.0
STOP_S = 5.0


class ElectionThread:
    """The Mandate of a process; `start` and `stop` belong to the loop that leads."""

    def __init__(
        self,
        access: KubeAccess,
        namespace: str,
        identity: str,
        settings: ElectionSettings,
        watch: LoopWatch,
        requests: Counter | None = None,
    ) -> None:
        self.acquired = asyncio.Event()
        self.ended = asyncio.Event()
        """Set when the lease was lost or given up, or the thread met a defect."""
        self._access = access
        self._candidate = (namespace, identity, settings)
        self._watch = watch
        self._traffic = Traffic(requests) if requests is not None else None
        self._elector: Elector | None = None
        self._failure = ""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()  # belongs to the thread's event loop

    def holds(self) -> bool:
        """See Mandate."""
        elector = self._elector
        return elector is not None and not self._failure and elector.holds()

    @property
    def lost_reason(self) -> str:
        """Why the lease is lost; empty before, and after `stop` of a holder."""
        elector = self._elector
        return self._failure or (elector.lost_reason if elector is not None else "")

    def lease_age_s(self) -> float:
        """Return the seconds since the last renewal began; 0 if the lease was never held."""
        elector = self._elector
        return elector.lease_age_s() if elector is not None else 0.0

    def start(self) -> None:
        """Stand for election."""
        leading = asyncio.get_running_loop()
        begun = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(leading, begun), name="election", daemon=True
        )
        self._thread.start()
        begun.wait()

    async def stop(self) -> None:
        """Stop standing, and let the next candidate begin at once; bounded and idempotent.

        Call it only after everything that writes has stopped.
        """
        if self._loop is None:
            return
        if not self.ended.is_set():
            with contextlib.suppress(RuntimeError):  # its loop has just been closed
                self._loop.call_soon_threadsafe(self._stopping.set)
            try:
                async with asyncio.timeout(STOP_S):
                    await self.ended.wait()
            except TimeoutError:  # for example during a name lookup
                _log.warning("the election did not end in %g s: its lease runs out", STOP_S)

    def _run(self, leading: asyncio.AbstractEventLoop, begun: threading.Event) -> None:
        try:
            asyncio.run(self._stand(leading, begun))
        except Exception as error:
            self._failure = f"the election met a defect: {type(error).__name__}: {error}"
            _log.exception("a defect of the election")
        finally:
            begun.set()
            leading.call_soon_threadsafe(self.ended.set)

    async def _stand(self, leading: asyncio.AbstractEventLoop, begun: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        api = KubeApi(self._access, None, self._traffic)
        elector = self._elector = Elector(
            api, *self._candidate, may_renew=lambda: self._watch.lag_s() < STALLED_S
        )
        begun.set()
        standing = self._loop.create_task(elector.run())
        stopping = self._loop.create_task(self._stopping.wait())
        acquired = self._loop.create_task(elector.acquired.wait())
        acquired.add_done_callback(
            lambda task: task.cancelled() or leading.call_soon_threadsafe(self.acquired.set)
        )
        try:
            await asyncio.wait((standing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if standing.done():
                standing.result()
        finally:
            for task in (standing, stopping, acquired):
                task.cancel()
            await asyncio.gather(standing, stopping, acquired, return_exceptions=True)
            # Otherwise the leading code may have a write under way: let the lease run out.
            if self._stopping.is_set():
                await elector.release()
            await api.close()
