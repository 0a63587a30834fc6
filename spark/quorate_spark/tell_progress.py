"""Tells how far a validation is: by a bar on a terminal, or at a port that the operator reads."""

import http.server
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from quorate_spark.progress import Progress

POLL_S = 0.1
PATIENCE_S = 2.0
"""How long one connection to the port may take."""


@contextmanager
def progress_bar(zone: str, terminal: TextIO) -> Iterator[Progress]:
    """Yield a Progress that is drawn on the terminal; nothing of it is left afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    console = Console(file=terminal)
    bar = Bar(
        *columns,
        TimeElapsedColumn(),
        console=console,
        refresh_per_second=2,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with bar:
        task = bar.add_task(f"copies of {zone} are read", total=100)
        yield Progress(lambda percent: bar.update(task, completed=percent))


@contextmanager
def progress_port(port: int) -> Iterator[Progress]:
    """Yield a Progress whose percentage is the answer to GET at a port of all addresses.

    It tells nothing else, so it asks for no secret.  No validation fails because the port cannot be
    opened.
    """
    progress = Progress()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def do_GET(self) -> None:
            answer = f"{progress.percent}\n".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            """Print nothing: the log of the pod is the report."""

    try:
        server = _Server(("", port), Handler)
    except OSError:
        yield progress
        return
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        server.shutdown()
        server.server_close()


class _Server(http.server.HTTPServer):
    """Answers one connection after the other, on IPv6 and IPv4, where there is both."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)  # that of HTTPServer asks the DNS for a name

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing of a connection that broke."""
