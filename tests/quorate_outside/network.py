"""That network, as the test sees it: which nodes there are, and where their ports lead."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quorate_cluster.processes import environment
from quorate_outside.streams import join

_NETWORK = (
    "ip link set lo up && for each in $0; do ip addr add $each/32 dev lo || exit 1; done && "
    'exec "$@"'
)


class OutsideNetwork:
    """A network namespace with the addresses of `nodes`, and a client in it.  `folder`: for socket
    files."""

    def __init__(self, nodes: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._led: set[tuple[str, int]] = set()
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        own_user = ["--map-root-user"] if os.getuid() else []
        variables = environment()
        variables["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[1])
        self._process = subprocess.Popen(
            [
                *["unshare", *own_user, "--net", "sh", "-c", _NETWORK, " ".join(nodes)],
                *[sys.executable, "-P", "-m", "quorate_outside.client"],
            ],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the client and the forwarders."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # transports that are closed end in the next turn

    def order(self, name: str, *arguments: Any) -> Any:
        """Have the client do something (client.Outside); its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client outside has ended: {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{name}{arguments}: {answer['error']}")
        return answer["answer"]

    def lead(self, node: str, port: int, to: tuple[str, int]) -> None:
        """The port of a node leads to an address of this network from now on."""
        if (node, port) in self._led:
            return
        self._led.add((node, port))
        file = self._folder / f"{node}-{port}"

        async def listen() -> None:
            async def out(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                try:
                    there = await asyncio.open_connection(*to)
                except OSError:
                    writer.close()
                    return
                await join(reader, writer, *there)

            self._servers.append(await asyncio.start_unix_server(out, file))

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self.order("forward", node, port, str(file))
