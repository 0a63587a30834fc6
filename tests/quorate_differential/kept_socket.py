"""A client's socket without a client: keeps what an agent writes to it, write by write."""

import asyncio


class KeptSocket(asyncio.Transport):
    """What a `ClientConnection` may be connected to."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self.written)
        self.written.clear()
        return taken

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def write_eof(self) -> None:
        pass  # whoever reads it finds no more

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass  # nothing waits in it

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass  # its test sends what it wants

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True
