"""`quorate-operator recover`: replaces a metastore that is lost, damaged or too old.

The new metastore has a mastership above all that agents know, and a mark that makes the operator,
once started, ask the agents for zones and rows (core: recover_rows.py).  It is made in a folder of
its own and put in place when it is complete; the old one is set aside.  Other clusters of the same
file are kept as they are, if it can be read; else each is recovered by a command of its own.  Zones
keep the names by which the old file declares them, if it can be read.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path
from shlex import quote

from quorate.facts.addresses import join_address, split_address
from quorate.facts.errors import QuorateError
from quorate.protocol.agent.masterships import RECOVERY_TERMS
from quorate.protocol.messages.handshake import FORMAT_VERSION, Hello
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.storage_cluster import StorageCluster, external
from quorate_link import BaseHandler, Endpoint, Link, RoleKeys
from quorate_operator.embedded.objects import ObjectStore
from quorate_operator.metastores.backups import DATABASE, put_in_place, set_aside
from quorate_operator.metastores.other_clusters import NotCopied, OtherClusters, other_clusters
from quorate_operator.metastores.sqlite import mark_recovering, note_zone_names
from quorate_operator.metastores.sqlite_file import EmbeddedStore, lock_folder

MADE = "recover.new"
"""The folder in which the new metastore is made."""
ANSWER_S = 5.0
"""Seconds to wait for agents.  Running ones answer at once; the operator hears the others later."""


class NotRecovered(QuorateError):
    """Nothing was changed; the message says why and what to do."""


async def recover(
    folder: Path,
    cluster: str,
    addresses: Sequence[str],
    keys: RoleKeys,
    secrets: Path,
) -> list[str]:
    """Make the new metastore; return sentences on what was done.  Raises NotRecovered,
    StoreRefused.

    `keys`: those of a tool of the cluster.  `secrets`: the folder of the secrets of all clusters.
    """
    with lock_folder(folder):
        known = await _ask_masterships(cluster, addresses, keys)
        if not known:
            raise NotRecovered(
                f"no agent of cluster {cluster} answers at {', '.join(addresses)}: "
                "start the agents first; nothing was changed"
            )
        highest = max(known.values())
        made = folder / MADE
        shutil.rmtree(made, ignore_errors=True)  # left by an interrupted command
        others = await _others(folder, cluster, secrets, made)
        await _make(made, cluster, addresses, highest + RECOVERY_TERMS, others)
        aside = set_aside(folder)
        put_in_place(made, folder)
        shutil.rmtree(made, ignore_errors=True)
    said = [f"master terms continue above {highest + RECOVERY_TERMS}; agents knew {highest}"]
    if aside is not None:
        said.append(f"the old file is kept in {aside}")
    if others.names:
        said.append(f"kept as they were: clusters {', '.join(sorted(others.names))}")
    said += _lacking(folder, secrets, {*others.names, cluster})
    silent = sorted({*addresses} - known.keys())
    if silent:
        said.append(f"no answer from {', '.join(silent)}: its data counts when it is back")
    return said


async def _others(folder: Path, cluster: str, secrets: Path, made: Path) -> OtherClusters:
    try:
        return await other_clusters(folder, cluster, made / "old")
    except NotCopied as error:
        shutil.rmtree(made, ignore_errors=True)
        others = _with_secrets(secrets) - {cluster}
        if not others:  # each cluster that was led has a secret
            return OtherClusters()
        raise NotRecovered(
            f"the old file, of which clusters {', '.join(sorted(others))} are to be kept, cannot be"
            f" copied: {error}; nothing was changed. Make room or mend this; or, if none of them is"
            f" in it, move {folder / DATABASE} away and run the command again"
        ) from error


def _with_secrets(secrets: Path) -> set[str]:
    """Return the names of the clusters that have a secret in this folder."""
    return {file.stem for file in secrets.glob("*.json")}


def _lacking(folder: Path, secrets: Path, clusters: Collection[str]) -> list[str]:
    """Return a sentence on clusters that have a secret, if the new file does not have them."""
    lacking = sorted(_with_secrets(secrets) - {*clusters})
    if not lacking:
        return []
    names = ", ".join(lacking)
    return [
        (
            f"the new file does not have the clusters {names}, of which there are secrets: stop the"
            " operator, then run for each that has agents"
            f" `quorate-operator recover --data {quote(str(folder.absolute()))}"
            f" --secrets {quote(str(secrets.absolute()))} --cluster NAME --agents HOST:PORT,…`"
        )
    ]


async def _make(
    folder: Path,
    cluster: str,
    addresses: Sequence[str],
    master_term: int,
    others: OtherClusters,
) -> None:
    store = EmbeddedStore.open(folder)

    def job(at: sqlite3.Connection) -> None:
        others.put(at)
        note_zone_names(at, cluster, others.zone_names)
        mark_recovering(at, cluster, master_term)

    try:
        await store.run(job)
        objects = ObjectStore(store)
        spec = external(addresses)
        about = {"apiVersion": API_VERSION, "kind": StorageCluster.kind_name()}
        declared = {**about, "metadata": {"name": cluster}, "spec": spec}
        await objects.put(StorageCluster.plural, cluster, declared)
    finally:
        await store.close()


class _Asking(BaseHandler):
    """Collects the masterships in agents' Hellos."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.changed = asyncio.Event()

    def on_up(self, link: Link, hello: Hello) -> None:
        if link.peer is not None and hello.role == "agent":
            self.known[join_address(*link.peer.address)] = hello.master_term
            self.changed.set()


async def _ask_masterships(
    cluster: str, addresses: Sequence[str], keys: RoleKeys
) -> dict[str, int]:
    """Return the highest mastership that each agent has obeyed, of those that answer in time."""
    asking = _Asking()
    endpoint = Endpoint(lambda: Hello(FORMAT_VERSION, "tool", cluster), asking, keys)
    for address in addresses:
        endpoint.dial(*split_address(address))
    try:
        async with asyncio.timeout(ANSWER_S):
            while len(asking.known) < len({*addresses}):
                asking.changed.clear()
                await asking.changed.wait()
    except TimeoutError:
        pass
    finally:
        await endpoint.close()
    return asking.known
