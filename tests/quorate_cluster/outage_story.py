"""A link over a network that is out for a while: `python -m quorate_cluster.outage_story`.

Runs in a network of its own, so that it can be cut: a cut network loses all packets and resets no
connection.  Prints what was seen as one JSON object; the test that starts it judges.
"""

import asyncio
import json
import subprocess
import sys

from quorate.protocol.messages.replication import Heartbeat
from quorate_link import DialedPeer
from quorate_loopback.sides import Side, close_opened
from quorate_loopback.waiting import until

HOST = "::1"
ENDS_S = 20.0
"""The kernel ends the link after a few seconds.  Without a bound it would take 15 minutes."""
BACK_S = 10.0


def _network(state: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", state], check=True)


async def _beat(peer: DialedPeer) -> None:
    """Send as an agent does to the members of its cluster."""
    number = 0
    while True:
        number += 1
        if peer.link is not None:
            peer.link.send(Heartbeat(1, number))
        await asyncio.sleep(0.1)


async def _story(seen: dict[str, object]) -> None:
    server, client = Side("agent-1"), Side("agent-2")
    port = await server.open().listen(HOST, 0)
    peer = client.open().dial(HOST, port, "agent-1")
    beating = asyncio.create_task(_beat(peer))
    try:
        await until(lambda: server.messages, "message before the cut")
        _network("down")
        await until(lambda: client.count("down", None), "end of the link", ENDS_S)
        before = len(server.messages)
        _network("up")
        await until(lambda: len(server.messages) > before, "message after the cut", BACK_S)
        seen["heard"] = [what for what, *_ in client.heard]
    except TimeoutError as late:
        seen["late"] = str(late)
    finally:
        beating.cancel()
        await close_opened()


def main() -> None:
    """Link two sides, cut the network until the link has ended, and mend it."""
    seen: dict[str, object] = {}
    asyncio.run(_story(seen))
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
