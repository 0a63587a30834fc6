"""Connections out of the kernel's table: who began them, and where the other side listens."""

import os
import socket
import subprocess

import pytest

from quorate_cluster.processes import environment
from quorate_cluster.waiting import wait_until
from quorate_network_policies.from_address import from_address
from quorate_network_policies.seen import Seen, SeenConnections

HERE = "127.0.0.1"
VISITOR = "127.9.9.9"


def _one_look(*pids: int, wanted: int = 0) -> set[Seen]:
    watched = SeenConnections(lambda: pids, lambda source, address, port: port == wanted)
    watched.look()
    return watched.seen


def test_a_connection_is_told_of_the_process_that_began_it() -> None:
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HERE, port)), server.accept()[0]:
            found = _one_look(os.getpid())

    assert Seen(os.getpid(), HERE, HERE, port) in found
    assert _one_look() == set()


def test_what_was_seen_once_stays_seen() -> None:
    with (
        socket.create_server((HERE, 0)) as server,
        SeenConnections(lambda: [os.getpid()]) as watched,
    ):
        port = server.getsockname()[1]
        with socket.create_connection((HERE, port)), server.accept()[0]:
            looks = watched.looks
            wait_until(lambda: watched.looks >= looks + 2, "two looks")

    assert Seen(os.getpid(), HERE, HERE, port) in watched.seen


@pytest.mark.parametrize("who_closes_first", ["client", "server"])
def test_a_connection_that_ended_before_the_look_is_told_of_its_address(
    who_closes_first: str,
) -> None:
    with socket.create_server((HERE, 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection((HERE, port), source_address=(VISITOR, 0))
        ends = {"client": client, "server": server.accept()[0]}
        ends.pop(who_closes_first).close()
        for other in ends.values():
            other.close()

        found = _one_look(os.getpid(), wanted=port)

    assert found >= {Seen(0, VISITOR, HERE, port)}


def test_a_module_connects_from_the_address_that_it_is_given() -> None:
    with socket.create_server((HERE, 0)) as server:
        server.settimeout(60)
        address = f"{HERE}:{server.getsockname()[1]}"
        command = from_address(VISITOR, "quorate_cli.plain_client", address, "PING")
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as visitor:
            accepted, source = server.accept()
            with accepted:
                accepted.sendall(b"+PONG\r\n")
                said, _ = visitor.communicate()

    assert source[0] == VISITOR
    assert said == b"PONG\n"
