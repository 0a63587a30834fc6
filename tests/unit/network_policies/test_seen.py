"""Connections out of the kernel's table: who began them, and where the other side listens."""

import os
import socket

from quorate_network_policies.seen import Seen, SeenConnections, connections_of


def test_a_connection_is_told_of_the_process_that_began_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            found = connections_of([os.getpid()])

    assert Seen(os.getpid(), "127.0.0.1", port) in found
    assert connections_of([]) == set()


def test_what_was_seen_once_stays_seen() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        SeenConnections(lambda: [os.getpid()]) as watched,
    ):
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            looks = watched.looks
            while watched.looks < looks + 2:
                pass

    assert Seen(os.getpid(), "127.0.0.1", port) in watched.seen
