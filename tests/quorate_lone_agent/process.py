"""An agent as its process has it, over a folder of its own; nobody is linked to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorate.protocol.settings import DEFAULTS
from quorate_agent.folder.data_folder import DataFolder
from quorate_agent.machine.clock import MachineClock
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.process.server import Agent
from quorate_agent.process.settings import AgentSettings
from quorate_loopback.sides import SECRET


@contextmanager
def opened_agent(path: Path) -> Iterator[Agent]:
    """Agent `agent-1` over a new folder, in the running event loop."""
    folder = DataFolder.open(path, cluster="demo", node="agent-1", cluster_id="id")
    here = "127.0.0.1"
    settings = AgentSettings("agent-1", path, "demo", here, 0, here, 0, here, here, here, 0)
    keys = SECRET.keys()
    try:
        yield Agent(settings, folder, {}, DEFAULTS, Descriptors(4096), keys, MachineClock())
    finally:
        folder.close()
