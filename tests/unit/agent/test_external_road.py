"""From the operator's word to a stock client: real agents and a runner on one event loop.

Both names of this machine are reached here; which one a client is given tells by which listener it
came in.  Clients in networks of their own: tests/process/agent/test_external_listener.py.
"""

from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode, RedisCluster

from quorate.facts.addresses import join_address
from quorate.facts.zone import StorageKind, ZoneRecord
from quorate.protocol.settings import DEFAULTS
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.machine.clock import MachineClock
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.process.probes import Probes
from quorate_agent.process.server import Agent
from quorate_agent.process.settings import AgentSettings
from quorate_control_plane.ports import free_ports
from quorate_loopback.runner_world import known_secret
from quorate_loopback.sides import HOST, SECRET
from quorate_loopback.waiting import until
from quorate_operator.mastership.runner import Runner
from quorate_operator.metastores.memory import MemoryMetastore
from quorate_operator.process.mandate import Always
from quorate_operator.process.metrics import Metrics

OUTSIDE = "localhost"
OFFSET = 1
ZONE = ZoneRecord("uid-1", "books", 16, 2, StorageKind.IN_MEMORY)
KEYS = [f"key-{number}" for number in range(64)]
Node: Any = ClusterNode


async def _start_agent(name: str, data: Path, announced: str) -> Agent:
    settings = AgentSettings(
        name, data, "main", HOST, 0, HOST, 0, HOST, HOST, HOST, 0,
        client_port_base=next(free_ports()),
        external_port_offset=OFFSET,
        told_external_host=announced,
    )  # fmt: skip
    folder = DataFolder.open(data, cluster="main", node=name, cluster_id="cluster-of-tests")
    descriptors = Descriptors(1 << 16, listeners=2)
    agent = Agent(settings, folder, {}, DEFAULTS, descriptors, SECRET.keys(), MachineClock())
    await agent.start(Probes(), 0)
    return agent


def _runner(agents: list[Agent]) -> Runner:
    runner = Runner(
        "main",
        MemoryMetastore(),
        mandate=Always(),
        settings=DEFAULTS,
        metrics=Metrics(),
        secret=known_secret,
    )
    runner.set_addresses([join_address(HOST, agent.peer_port) for agent in agents])
    runner.set_zone(ZONE)
    runner.start()
    return runner


@pytest.mark.parametrize("announced", [OUTSIDE, ""])
async def test_a_client_uses_the_addresses_of_the_listener_that_it_came_by(
    tmp_path: Path, announced: str
) -> None:
    agents = [await _start_agent(name, tmp_path / name, announced) for name in ("a", "b")]
    runner = _runner(agents)

    def zone() -> Any:
        return next(iter(runner.status().zones), None)

    def ports(of: str) -> dict[str, int]:
        return dict(getattr(zone(), of)) if zone() is not None else {}

    try:
        await until(lambda: zone() is not None and zone().available == 16, "zone")
        await until(lambda: len(ports("ports")) == 2, "client ports")
        outside = {node: port + OFFSET for node, port in ports("ports").items()}
        if not announced:
            assert ports("external_ports") == {}
            runner.set_external(dict.fromkeys("ab", OUTSIDE), {"uid-1": outside})
        await until(lambda: ports("external_ports") == outside, "external ports")
        for host, by_node in ((HOST, ports("ports")), (OUTSIDE, outside)):
            client: Any = RedisCluster(startup_nodes=[Node(host, by_node["a"])])
            for key in KEYS:
                await client.set(key, host)
            assert [await client.get(key) for key in KEYS] == [host.encode()] * len(KEYS)
            found = {(node.host, node.port) for node in client.get_nodes()}
            # The client writes 127.0.0.1 for localhost.
            assert {port for _, port in found} == {*by_node.values()}
            slots = await client.execute_command(
                "CLUSTER NODES", target_nodes=client.get_random_node()
            )
            assert {each.rpartition(":")[0] for each in slots} == {host}
            await client.aclose()
    finally:
        await runner.stop()
        for agent in agents:
            await agent.close()
