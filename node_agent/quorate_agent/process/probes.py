"""Answers to the probes of an agent's process: has it started, may clients be sent to it?

    opening zones --listens--> started --registered, all zones told and open--> ready
    ready --SIGTERM--> leaving

A ready agent may still be filling copies: it answers all clients, and redirects them where it is
not primary.  An agent is not ready until a master has registered it since its start.  Then it stays
ready: while the operator is away, because its zones go on, and while it opens zones that are made
later, because clients of the others need it.  It is not ready without its registration.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

from quorate.protocol.agent.agent import AgentCore

Answer = tuple[bool, str]
"""The answer, and a sentence with the reason."""


class Probes:
    """The probe answers of one process, from its start on."""

    def __init__(self) -> None:
        self._doing = "reads its data folder"
        self._registry: CollectorRegistry | None = None
        self._core: Callable[[], AgentCore] | None = None
        self._was_ready = False

    def opening(self, uid: str, number: int, count: int) -> None:
        """Note that the agent reads the log of a stored zone, the `number`th of `count`."""
        self._doing = f"opens zone {uid}, {number} of {count}: its log is read"

    def starts(self, registry: CollectorRegistry) -> None:
        """Note that everything stored is open."""
        self._doing, self._registry = "begins to listen", registry

    def listens(self, core: Callable[[], AgentCore]) -> None:
        """Note that the operator and other agents can connect."""
        self._core = core

    def metrics(self) -> bytes | None:
        """Return all metrics as text; None if there are none yet."""
        return None if self._registry is None else generate_latest(self._registry)

    def started(self) -> Answer:
        """Return whether the stored zones are open and the agent listens for peers."""
        return (True, "started") if self._core is not None else (False, self._doing)

    def ready(self) -> Answer:
        """Return whether clients may be sent here."""
        if self._core is None:
            return False, self._doing
        core = self._core()
        if core.leaving:
            return False, "hands its primaries over and ends"
        if not core.registered:
            return False, core.refusal or "no master has registered this agent yet"
        if not core.informed:
            return False, "the master has not sent all zones yet"
        waiting = len(core.opening)
        if waiting and not self._was_ready:
            return False, f"{waiting} of {len(core.zones) + waiting} zones are not open yet"
        self._was_ready = True
        return True, f"serves {len(core.zones)} zones"
