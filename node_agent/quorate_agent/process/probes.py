"""Answers to the probes of an agent's process: has it started, may clients be sent to it?

    opening zones --listens--> started --registered, all zones told and open--> ready
    ready --SIGTERM--> leaving

An agent that is ready may still fetch copies: it answers all clients, and sends them on where it is
not primary.  One that no operator has heard of since its start takes no part.  One that was
registered stays ready while the operator is away, as its zones go on.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest

from quorate.protocol.agent.agent import AgentCore

Answer = tuple[bool, str]
"""Whether, and a sentence saying so or why not."""


class Probes:
    """The answers of one process, from its first moment on."""

    def __init__(self) -> None:
        self._doing = "reads its data folder"
        self._registry: CollectorRegistry | None = None
        self._core: Callable[[], AgentCore] | None = None

    def opening(self, uid: str, number: int, count: int) -> None:
        """The agent reads the log of a stored zone, the `number`th of `count`."""
        self._doing = f"opens zone {uid}, {number} of {count}: its log is read"

    def starts(self, registry: CollectorRegistry) -> None:
        """Everything stored is open."""
        self._doing, self._registry = "begins to listen", registry

    def listens(self, core: Callable[[], AgentCore]) -> None:
        """The operator and other agents can connect."""
        self._core = core

    def metrics(self) -> bytes | None:
        """All metrics as text; None: there are none yet."""
        return None if self._registry is None else generate_latest(self._registry)

    def started(self) -> Answer:
        """Whether the stored zones are open and peers are listened for."""
        return (True, "started") if self._core is not None else (False, self._doing)

    def ready(self) -> Answer:
        """Whether clients may be sent here."""
        if self._core is None:
            return False, self._doing
        core = self._core()
        if core.leaving:
            return False, "hands its primaries over and ends"
        if not core.registered:
            return False, "no master has registered this agent yet"
        if not core.informed:
            return False, "the master has not told all zones yet"
        if waiting := len(core.opening):
            return False, f"{waiting} of {len(core.zones) + waiting} zones are not open yet"
        return True, f"takes part in {len(core.zones)} zones"
