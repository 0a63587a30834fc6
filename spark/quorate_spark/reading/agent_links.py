"""Connections to several agents, each opened when it is first needed and then kept."""

from types import TracebackType
from typing import Self

from quorate_spark.reading.agent_link import AgentLink, Cluster
from quorate_spark.reading.read_copies import open_link
from quorate_spark.settings import Settings


class AgentLinks:
    """One connection per agent, opened when needed."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._open: dict[str, AgentLink] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for address in list(self._open):
            if kind is None:
                self._open.pop(address).close()
            else:
                self.drop(address)

    def to(self, address: str) -> AgentLink:
        """Return the connection to an agent.  Raises Unreadable if the agent cannot be reached."""
        if address not in self._open:
            self._open[address] = open_link(address, self._cluster, self._settings)
        return self._open[address]

    def drop(self, address: str) -> None:
        """Close the connection after an Unreadable.

        A request that had no answer in time must not arrive after all: it would put back the rows
        that it replaces.
        """
        link = self._open.pop(address, None)
        if link is not None:
            link.abort()
