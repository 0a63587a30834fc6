"""`quorate-agent`: one agent process."""

from __future__ import annotations

import argparse
import sys

if not __debug__:
    sys.exit("quorate-agent: -O removes checks that keep data safe; start Python without -O")

import asyncio
import gc
import json
import logging
import os
import signal
from pathlib import Path
from typing import NoReturn

import uvloop

from quorate.facts.errors import QuorateError
from quorate.protocol.settings import ProtocolSettings
from quorate_agent.client_memory import SETTING
from quorate_agent.data_folder import (
    DataFolder,
    FolderRefused,
    put_folder_back,
    set_folder_aside,
)
from quorate_agent.descriptors import Descriptors
from quorate_agent.server import Agent
from quorate_agent.settings import CLIENT_MEMORY_SHARE, AgentSettings
from quorate_agent.storage import DatabaseRefused, StorageBroken
from quorate_agent.storage.rocks import RocksStorage
from quorate_agent.stored_zones import last_start, open_stored_zones
from quorate_link.descriptors import raise_limit
from quorate_link.secret import ClusterSecret, SecretRefused, read_secret

_log = logging.getLogger("quorate.agent")

EXIT_REFUSED = 3
EXIT_FAILED = 4


class _JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: write HOST:PORT (port 0: a free one)")
    return host, int(port)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number above 0 and up to 1, as 0.2")
    return share


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quorate-agent", description=__doc__)
    parser.add_argument("--name", required=True, help="unique among the cluster's agents")
    parser.add_argument("--data", required=True, type=Path, help="the data folder")
    parser.add_argument("--cluster", required=True, help="name of the cluster")
    parser.add_argument(
        "--secret-file",
        required=True,
        type=Path,
        metavar="FILE",
        help="the cluster's secret, the same for the operator and all agents: who does not know it"
        " is told nothing",
    )
    parser.add_argument("--peer", type=_address, default=("127.0.0.1", 0), metavar="HOST:PORT")
    parser.add_argument("--client-host", default="127.0.0.1")
    parser.add_argument("--client-port-base", type=int, default=7000)
    parser.add_argument("--admin", type=_address, default=("127.0.0.1", 0), metavar="HOST:PORT")
    parser.add_argument("--failure-domain", default="")
    parser.add_argument("--weight", type=int, default=1)
    parser.add_argument(
        "--debug-commands", action="store_true", help="allow damaging a copy on purpose"
    )
    parser.add_argument(
        "--believe-term",
        type=int,
        default=0,
        metavar="TERM",
        help="once, when a master was refused because its term is too far above all that this agent"
        " has heard of, and really so many masterships went by without it",
    )
    parser.add_argument(
        SETTING,
        type=_share,
        default=CLIENT_MEMORY_SHARE,
        metavar="SHARE",
        help="share of the memory limit (cgroup, else the machine's) for commands that clients have"
        " sent and replies that they have not read: above it large commands are refused with -OOM,"
        " and where unread replies fill the rest, the connections that hold the most of them are"
        " closed (default: %(default)s)",
    )
    parser.add_argument(
        "--set-aside",
        default="",
        metavar="REASON",
        help="keep what the data folder holds under set-aside-N in it, and end: the next start is"
        " over a new store, which the other owners fill",
    )
    parser.add_argument(
        "--put-back",
        type=int,
        default=0,
        metavar="N",
        help="put set-aside-N of the data folder back, and end: for when every store of a"
        " partition is gone for good; what was answered since, or was lost before, is missing",
    )
    return parser


def _settings(given: argparse.Namespace) -> AgentSettings:
    return AgentSettings(
        name=given.name,
        data=given.data,
        cluster=given.cluster,
        peer_host=given.peer[0],
        peer_port=given.peer[1],
        client_host=given.client_host,
        admin_host=given.admin[0],
        admin_port=given.admin[1],
        client_port_base=given.client_port_base,
        failure_domain=given.failure_domain,
        weight=given.weight,
        client_memory_share=given.client_memory_share,
        debug_commands=given.debug_commands,
        believe_term=given.believe_term,
    )


async def _run(
    settings: AgentSettings,
    folder: DataFolder,
    stored: dict[str, RocksStorage],
    descriptors: Descriptors,
    secret: ClusterSecret,
) -> Agent:
    agent = Agent(settings, folder, stored, ProtocolSettings(), descriptors, secret.keys())
    loop = asyncio.get_running_loop()
    leaving: list[asyncio.Task[None]] = []

    def leave() -> None:
        if leaving:
            agent.stopped.set()  # asked twice: do not wait for others
        else:
            leaving.append(loop.create_task(agent.leave()))

    await agent.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    gc.collect()
    gc.freeze()
    await agent.stopped.wait()
    await agent.close()
    return agent


def main(arguments: list[str] | None = None) -> None:
    """Run until told to stop."""
    given = _parser().parse_args(arguments)
    settings = _settings(given)
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    if given.set_aside:
        _set_aside(settings, given.set_aside)
        return
    if given.put_back:
        _put_back(settings, given.put_back)
        return
    descriptors = Descriptors(raise_limit())
    try:
        secret = read_secret(given.secret_file)
        folder = _open_folder(settings, secret)
        stored = open_stored_zones(folder, descriptors)
    except (SecretRefused, FolderRefused, DatabaseRefused, StorageBroken) as refused:
        _end(EXIT_REFUSED, str(refused))
    try:
        agent = uvloop.run(_run(settings, folder, stored, descriptors, secret))
    except (OSError, QuorateError) as error:
        _end(EXIT_FAILED, str(error))
    if agent.restart:
        try:
            folder = _open_folder(settings, secret)
            aside = folder.set_aside(agent.failure)
        except FolderRefused as refused:
            _end(EXIT_REFUSED, str(refused))
        folder.close()
        _log.error("the data folder was set aside as %s: %s", aside, agent.failure)
        os.execv(sys.executable, [sys.executable, "-m", "quorate_agent", *sys.argv[1:]])
    if agent.failure:
        _end(EXIT_FAILED, agent.failure)


def _open_folder(settings: AgentSettings, secret: ClusterSecret) -> DataFolder:
    return DataFolder.open(
        settings.data,
        cluster=settings.cluster,
        node=settings.name,
        cluster_id=secret.cluster_id,
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
            incarnation=last_start(settings.data / f"set-aside-{number}" / "zones"),
        )
    except (FolderRefused, DatabaseRefused, StorageBroken) as refused:
        _end(EXIT_REFUSED, str(refused))


def _end(code: int, why: str) -> NoReturn:
    """End with `why` as the last line: whoever started this process reads it there."""
    sys.stderr.write(f"quorate-agent: {' '.join(why.split())}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
