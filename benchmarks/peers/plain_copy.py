"""How fast bytes pass from one process to another over loopback, and nothing else is done."""

import socket
import subprocess
import sys
import time

CHUNK = bytes(1 << 20)
_RECEIVER = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
into = bytearray(1 << 20)
while connection.recv_into(into):
    pass
"""


def plain_copy_bytes_per_s(size: int) -> float:
    """Bytes per second of `size` bytes, until the receiver has them all."""
    receiver = subprocess.Popen(
        [sys.executable, "-c", _RECEIVER], stdout=subprocess.PIPE, text=True
    )
    assert receiver.stdout is not None
    port = int(receiver.stdout.readline())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        began = time.monotonic()
        for _ in range(size // len(CHUNK)):
            connection.sendall(CHUNK)
        connection.shutdown(socket.SHUT_WR)
        receiver.wait()
    return size / (time.monotonic() - began)
