"""One agent process, from its command line to its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from typing import NoReturn

import uvloop

from quorate.facts.errors import QuorateError
from quorate.protocol.settings import ProtocolSettings
from quorate_agent.folder.data_folder import DataFolder, put_folder_back, set_folder_aside
from quorate_agent.folder.identity import FolderRefused
from quorate_agent.machine.clock import Clock, MachineClock
from quorate_agent.machine.descriptors import Descriptors
from quorate_agent.machine.memory_limit import memory_limit
from quorate_agent.process.admin import start_admin
from quorate_agent.process.arguments import read_arguments, settings_of
from quorate_agent.process.early_end import end_at_once, end_by_signal
from quorate_agent.process.probes import Probes
from quorate_agent.process.server import Agent
from quorate_agent.process.settings import AgentSettings
from quorate_agent.resp.values.collection import bound_collections
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.zones.stored_zones import last_start, open_stored_zones
from quorate_link.descriptors import raise_limit
from quorate_link.log_lines import log_to_stderr
from quorate_link.secret import ClusterSecret, SecretRefused, read_secret

_log = logging.getLogger("quorate.agent")

EXIT_REFUSED = 3
EXIT_FAILED = 4


class _Refused(Exception):
    """A sentence about stored data that cannot be used."""


async def _run(
    settings: AgentSettings, secret: ClusterSecret, descriptors: Descriptors, clock: Clock
) -> Agent:
    """Run one agent from start to end; _Refused if it cannot start."""
    loop = asyncio.get_running_loop()
    probes = Probes()
    # From here on probes are answered, even while logs are read.
    admin = await start_admin(settings.admin_host, settings.admin_port, probes)
    loop.add_signal_handler(signal.SIGTERM, end_at_once)
    loop.add_signal_handler(signal.SIGINT, end_at_once)
    folder, stored = await asyncio.to_thread(_open, settings, secret, descriptors, probes, clock)
    folder.disk.look()
    protocol = ProtocolSettings(aside_bytes_max=int(folder.disk.size * settings.aside_share))
    bound_collections(memory_limit().bytes)
    agent = Agent(settings, folder, stored, protocol, descriptors, secret.keys(), clock)
    probes.starts(agent.metrics.registry)
    leaving: list[asyncio.Task[None]] = []

    def leave() -> None:
        if leaving:
            agent.stopped.set()  # asked twice: do not wait for others
        else:
            leaving.append(loop.create_task(agent.leave()))

    await agent.start(probes, admin.port)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    gc.collect()
    gc.freeze()
    await agent.stopped.wait()
    await agent.close()
    await admin.close()
    return agent


def _open(
    settings: AgentSettings,
    secret: ClusterSecret,
    descriptors: Descriptors,
    probes: Probes,
    clock: Clock,
) -> tuple[DataFolder, dict[str, RocksStorage]]:
    try:
        folder = _open_folder(settings, secret, clock)
        return folder, open_stored_zones(folder, descriptors, probes.opening)
    except (FolderRefused, DatabaseRefused, StorageBroken) as refused:
        raise _Refused(str(refused)) from refused


def main(arguments: list[str] | None = None) -> None:
    """Run until told to stop."""
    clock = MachineClock()
    given = read_arguments(arguments)
    settings = settings_of(given)
    log_to_stderr(cluster=settings.cluster, agent=settings.name)
    if given.set_aside or given.put_back:
        end_by_signal()
    if given.set_aside:
        _set_aside(settings, given.set_aside)
        return
    if given.put_back:
        _put_back(settings, given.put_back)
        return
    try:
        secret = read_secret(given.secret_file)
        listeners = 2 if settings.external_port_offset else 1
        descriptors = Descriptors(raise_limit(), listeners)
        agent = uvloop.run(_run(settings, secret, descriptors, clock))
    except (SecretRefused, FolderRefused, _Refused) as refused:
        _end(EXIT_REFUSED, str(refused))
    except (OSError, QuorateError) as error:
        _end(EXIT_FAILED, str(error))
    if agent.restart:
        try:
            folder = _open_folder(settings, secret, clock)
            aside = folder.set_aside(agent.failure)
        except FolderRefused as refused:
            _end(EXIT_REFUSED, str(refused))
        folder.close()
        _log.error("the data folder was set aside as %s: %s", aside, agent.failure)
        os.execv(sys.executable, [sys.executable, "-m", "quorate_agent", *sys.argv[1:]])
    if agent.failure:
        _end(EXIT_FAILED, agent.failure)


def _open_folder(settings: AgentSettings, secret: ClusterSecret, clock: Clock) -> DataFolder:
    return DataFolder.open(
        settings.data,
        cluster=settings.cluster,
        node=settings.name,
        cluster_id=secret.cluster_id,
        disk_reserve=settings.disk_reserve,
        clock=clock,
    )


def _set_aside(settings: AgentSettings, reason: str) -> None:
    try:
        aside = set_folder_aside(
            settings.data, cluster=settings.cluster, node=settings.name, reason=reason
        )
    except FolderRefused as refused:
        _end(EXIT_REFUSED, str(refused))
    sys.stdout.write(f"{aside}\n")


def _put_back(settings: AgentSettings, number: int) -> None:
    try:
        put_folder_back(
            settings.data,
            cluster=settings.cluster,
            node=settings.name,
            number=number,
            last_start=last_start,
        )
    except FolderRefused as refused:
        _end(EXIT_REFUSED, str(refused))


def _end(code: int, why: str) -> NoReturn:
    """End with `why` as the last line of stderr, where the parent process looks for it."""
    sys.stderr.write(f"quorate-agent: {' '.join(why.split())}\n")
    sys.exit(code)
