"""`helm test`: writes a key into every zone that the operator serves, and reads it again.

It runs as a pod with the operator's account, in the operator's image, so it needs only the standard
library and the small client.
"""

import argparse
import json
import secrets
import ssl
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

from quorate.facts.addresses import split_address
from quorate_cli.plain_client import ErrorReply, PlainClient
from quorate_cli.terminal.problem import Problem

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
TIMEOUT_S = 10.0
KEPT_S = 60
"""Seconds until the key expires, if this program ends before it has deleted it."""

PATIENCE_S = 20.0
"""Seconds after its start in which agents may be out of reach.

A network plugin that enforces NetworkPolicies refuses what a new pod begins until every node knows
the pod: seconds, on busy nodes."""
_PAUSE_S = 0.5

Json = dict[str, Any]


class WrongReply(Problem):
    """An agent was reached, and did not answer as it should."""


class Account:
    """The API server, with the rights of this pod's account."""

    def __init__(self, folder: Path, server: str) -> None:
        self._server = server.rstrip("/")
        self.namespace = (folder / "namespace").read_text().strip()
        self._token = (folder / "token").read_text().strip()
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._web = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def zones(self, namespace: str) -> list[Json]:
        """Return the Zones of one namespace, or of all if it is empty.  Raises Problem."""
        place = f"namespaces/{namespace}/" if namespace else ""
        address = f"{self._server}/apis/quorate.io/v1alpha1/{place}zones"
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            request = urllib.request.Request(address, headers=headers)
            with self._web.open(request, timeout=TIMEOUT_S) as answer:
                return list(json.load(answer)["items"])
        except HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            raise Problem(f"GET {address}: {error.code}: {said}") from error
        except (URLError, OSError, ValueError) as error:
            raise Problem(f"GET {address}: not answered by an API server: {error}") from error


def check_zone(zone: Json, reached_by: float = 0.0) -> None:
    """Write a key into the zone, read it and delete it.  Raises Problem if any of that fails.

    Agents out of reach are tried again until `reached_by` on the monotonic clock."""
    endpoints = (zone.get("status") or {}).get("endpoints") or []
    if not endpoints:
        where = f"--namespace {zone['metadata']['namespace']} zone {zone['metadata']['name']}"
        raise Problem(f"status.endpoints is empty: `kubectl describe {where}` shows the reason")
    while True:
        try:
            return _write_and_read(endpoints)
        except WrongReply:
            raise
        except Problem:
            if time.monotonic() >= reached_by:
                raise
        time.sleep(_PAUSE_S)


def _write_and_read(endpoints: Sequence[str]) -> None:
    key = f"quorate:helm-test:{secrets.token_hex(8)}".encode()
    value = secrets.token_hex(8).encode()
    client = _first_client(endpoints)
    try:
        for command, wanted in (
            ([b"SET", key, value, b"EX", b"%d" % KEPT_S], b"OK"),
            ([b"GET", key], value),
            ([b"DEL", key], 1),
        ):
            reply = client.ask(command)
            if reply != wanted:
                said = (
                    reply.text.decode(errors="replace") if isinstance(reply, ErrorReply) else reply
                )
                name = command[0].decode()
                raise WrongReply(f"{client.address}: {name} was answered by {said!r}")
    finally:
        client.close()


def _first_client(endpoints: Sequence[str]) -> PlainClient:
    """Return a client of the first agent that answers; else raise the last one's Problem."""
    problem = Problem("no endpoint")
    for endpoint in endpoints:
        host, port = split_address(endpoint)
        client = PlainClient(host, port, sys.stdout.buffer, False, TIMEOUT_S)
        try:
            client.ask([b"PING"])
        except Problem as error:
            client.close()
            problem = error
        else:
            return client
    raise problem


def check_all(zones: Sequence[Json], reached_by: float = 0.0) -> Iterator[tuple[str, str]]:
    """Yield NAMESPACE/NAME of each zone, and the problem with it; empty if there is none."""
    for zone in zones:
        metadata = zone["metadata"]
        if metadata.get("deletionTimestamp"):
            continue
        try:
            check_zone(zone, reached_by)
            problem = ""
        except Problem as error:
            problem = str(error)
        yield f"{metadata['namespace']}/{metadata['name']}", problem


def main(words: Sequence[str] | None = None) -> int:
    """Return the exit code: 1 if a zone did not take the key, or zones could not be listed."""
    parser = argparse.ArgumentParser(prog="zone_check", description="Write and read in every zone.")
    parser.add_argument("--namespace", action="append", help="where zones are; may be repeated")
    parser.add_argument("--all-namespaces", action="store_true")
    parser.add_argument("--account", type=Path, default=ACCOUNT, help="folder of token and ca.crt")
    parser.add_argument("--server", default=SERVER, help="the API server")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_S, help="seconds for agents to be reached"
    )
    given = parser.parse_args(words)
    reached_by = time.monotonic() + given.patience
    try:
        account = Account(given.account, given.server)
        places = [""] if given.all_namespaces else given.namespace or [account.namespace]
        zones = [zone for place in places for zone in account.zones(place)]
    except (Problem, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    is_well = True
    for name, problem in check_all(zones, reached_by):
        is_well &= not problem
        print(f"zone {name}: {problem or 'a key was written, read and deleted'}", flush=True)
    if not zones:
        print("no Zone is declared, so nothing was written")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
