"""What may not be: an update for a forwarded command whose client has been told by then.

But for what waits for a transaction's lock, which goes on; no story has such locks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from quorate.protocol.messages.clients import Forward, Forwarded
from quorate_agent.commands import endpoint
from quorate_agent.commands.endpoint import ZoneEndpoint
from quorate_agent.commands.execution import CommandExecution
from quorate_agent.commands.routing.forwards import Forwards

if TYPE_CHECKING:
    from collections.abc import Callable

    from quorate.protocol.agent.replicas import Replicas
    from quorate.protocol.copies.primary import Primary
    from quorate.protocol.storage import Operation
    from quorate_agent.clients.connection import ClientConnection, Slot
    from quorate_agent.resp.transaction import Call

_NOTHING_HAPPENED = (b"-OOM ", b"-MISCONF ", b"-MOVED ")


class WatchedForwards(Forwards):
    """Notes of which of its commands clients were told that nobody knows, or that nothing happened;
    and which of others' is being executed."""

    performed = ("", 0)
    given_up: set[tuple[str, int]]
    sent: Callable[[str], None]

    def take_on(self, slot: Slot, partition: int, primary: str) -> None:
        super().take_on(slot, partition, primary)
        self.sent(primary)

    def perform(self, node: str, message: Forward) -> None:
        self.performed = (message.process, message.number)
        super().perform(node, message)

    def give_up(self, slot: Slot) -> None:
        request = self._requests.get(slot)
        if request is not None:
            self.given_up.add((self._process, request.message.number))
        super().give_up(slot)

    def take_reply(self, node: str, message: Forwarded) -> None:
        waited = message.number in self._by_number
        super().take_reply(node, message)
        is_told = waited and message.number not in self._by_number
        if is_told and message.reply.startswith(_NOTHING_HAPPENED):
            self.given_up.add((self._process, message.number))


class WatchedEndpoint(ZoneEndpoint):
    """An endpoint that must not update anything for a forwarded command whose client was told.
    `sent` is told to whom it has just forwarded one."""

    forwards: WatchedForwards

    def __init__(
        self,
        replicas: Replicas,
        given_up: set[tuple[str, int]],
        sent: Callable[[str], None],
        **named: Any,
    ) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(endpoint, "Forwards", WatchedForwards)
            patch.setattr(endpoint, "CommandExecution", WatchedExecution)
            super().__init__(replicas, **named)
        self.forwards.given_up, self.forwards.sent = given_up, sent
        assert isinstance(self._execution, WatchedExecution)
        self._execution.given_up = given_up
        self._asked_as = self._execution.asked_as = {}

    def execute_forwarded(self, client: ClientConnection, call: Call) -> None:
        self._asked_as[client] = self.forwards.performed
        super().execute_forwarded(client, call)


class WatchedExecution(CommandExecution):
    """Executes for such an endpoint; `asked_as`: process and number of what others' clients ask."""

    given_up: set[tuple[str, int]]
    asked_as: dict[ClientConnection, tuple[str, int]]

    def _write(
        self, client: ClientConnection, role: Primary, operations: tuple[Operation, ...]
    ) -> tuple[bytes | None, ...]:
        asked = self.asked_as.get(client)
        told = asked in self.given_up
        assert not told, f"forwarded command {asked} is executed after its client was told"
        return super()._write(client, role, operations)
