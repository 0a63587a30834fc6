"""Sockets for a zone's clients on a port that the master gave, and why they cannot be had."""

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from quorate.protocol.storage import ZoneRefused
from quorate_agent.clients.ports import ClientPorts
from quorate_control_plane.ports import free_ports


@pytest.fixture
def port() -> int:
    return next(free_ports())


@pytest.fixture
def ports() -> ClientPorts:
    made = ClientPorts("127.0.0.1", 7000)
    assert asyncio.run(made.look_up())
    return made


def test_a_zone_listens_on_the_port_that_it_was_given(ports: ClientPorts, port: int) -> None:
    (listening,) = ports.bind_given("uid-1", port)

    assert listening.getsockname() == ("127.0.0.1", port)
    listening.close()


def test_a_port_that_another_program_has_is_named_and_had_when_it_is_free(
    ports: ClientPorts, port: int
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(ZoneRefused) as refused:
            ports.bind_given("uid-1", port)
    assert str(refused.value) == (
        f"client port {port}, which the master gave it, cannot be listened on: Address already in"
        " use. Way out: end what has the port at 127.0.0.1"
    )

    (listening,) = ports.bind_given("uid-1", port)
    listening.close()


def test_a_port_is_one_zones_until_it_has_closed(ports: ClientPorts, port: int) -> None:
    (listening,) = ports.bind_given("uid-1", port)
    listening.close()
    with pytest.raises(ZoneRefused, match="is still another zone's here"):
        ports.bind_given("uid-2", port)

    ports.give_back("uid-1")

    (listening,) = ports.bind_given("uid-2", port)
    listening.close()


def test_a_zone_that_was_given_no_port_is_refused(ports: ClientPorts) -> None:
    with pytest.raises(ZoneRefused, match="the master has given it no client port"):
        ports.bind_given("uid-1", 0)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_host_that_cannot_be_a_name_has_no_address(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    ports = ClientPorts("a" * 64, 7000)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert not runner.run(ports.look_up())

    with pytest.raises(ZoneRefused, match=r"has no address: .+ Way out"):
        ports.bind("uid-1", 0)
