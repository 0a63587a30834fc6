"""Starts the operator: `quorate-operator embedded`, `recover` or `kubernetes`."""

import sys

if not __debug__:
    sys.exit("quorate-operator: python -O removes its checks: start without -O")

import argparse
import asyncio
import ipaddress
import json
import logging
import os
import traceback
from pathlib import Path

import uvloop
from aiohttp import web

from quorate.facts.addresses import NotAnAddress, read_address
from quorate.facts.errors import NO_RIGHTS, NO_ROOM, QuorateError
from quorate.protocol.settings import DEFAULTS
from quorate_link.descriptors import raise_limit
from quorate_link.garbage import keep_collecting
from quorate_link.secret import read_secret
from quorate_operator.embedded.api import make_runner
from quorate_operator.embedded.api_guard import made_token
from quorate_operator.embedded.operator import Embedded, secret_file
from quorate_operator.embedded.recover import recover
from quorate_operator.mastership.election import ElectionSettings, scaled
from quorate_operator.metastores.sqlite_file import EmbeddedStore
from quorate_operator.process.logs import start_logging
from quorate_operator.process.stopping import Stopping

_log = logging.getLogger("quorate.operator")

HEALTH_PORT = 8080


_RIGHTS = "start it as the owner of the folder"
_ROOM = "free some space, then start it again"
_WAY_OUT = dict.fromkeys(NO_RIGHTS, _RIGHTS) | dict.fromkeys(NO_ROOM, _ROOM)
_SECRETS_HELP = "folder of the clusters' secrets, CLUSTER.json each; default: secrets in --data"


def main() -> int:
    """Run the operator; return the exit code.

    0 after a requested stop, 1 after a refusal or a defect, 3 (EXIT_LOST) if the lease was lost;
    argparse exits with 2 if arguments are wrong.
    """
    arguments = _parse()
    start_logging()
    raise_limit()
    code = 0
    try:
        if arguments.mode == "kubernetes":
            code = uvloop.run(_run_kubernetes(arguments))
        elif arguments.mode == "recover":
            name = arguments.cluster
            secrets = _secrets(arguments)
            keys = read_secret(secret_file(secrets, name)).keys("tool")
            said = uvloop.run(recover(arguments.data, name, arguments.agents, keys, secrets))
            print("\n".join(said))
        else:
            uvloop.run(_run_embedded(arguments.data, _secrets(arguments), *arguments.api))
    except QuorateError as error:
        print(f"quorate-operator: {error}", file=sys.stderr)
        code = 1
    except OSError as error:
        print(f"quorate-operator: {_refusal(error, arguments)}", file=sys.stderr)
        code = 1
    except Exception:
        traceback.print_exc()
        code = 1
    if arguments.mode == "kubernetes":
        # No thread may go on in a process that no longer leads, not even one that hangs.
        sys.stderr.flush()
        os._exit(code)
    return code


def _refusal(error: OSError, arguments: argparse.Namespace) -> str:
    """Return what the system refused, with the file and the way out if these are known."""
    way_out = _WAY_OUT.get(error.errno or 0)
    where = error.filename
    if where is None and way_out == _ROOM:  # a write does not name its file
        where = getattr(arguments, "data", None)
    if way_out is None or where is None:
        return str(error)
    return f"{where}: {os.strerror(error.errno or 0).lower()}. Way out: {way_out}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="quorate-operator",
        description="Lead clusters of agents: decide which agents own what.",
    )
    modes = parser.add_subparsers(dest="mode", required=True)
    embedded = modes.add_parser("embedded", help="without Kubernetes, on one machine")
    embedded.add_argument("--data", type=Path, required=True, help="folder of the metastore")
    embedded.add_argument("--secrets", type=Path, help=_SECRETS_HELP)
    embedded.add_argument(
        "--api",
        type=_loopback_address,
        default=("127.0.0.1", 0),
        help="HOST:PORT; port 0: any free",
    )
    recovery = modes.add_parser(
        "recover", help="rebuild a lost metastore from the agents' data (operator stopped)"
    )
    recovery.add_argument("--data", type=Path, required=True, help="folder of the metastore")
    recovery.add_argument("--secrets", type=Path, help=_SECRETS_HELP)
    recovery.add_argument("--cluster", required=True, help="the StorageCluster's name")
    recovery.add_argument("--agents", required=True, type=_addresses, help="HOST:PORT,…")
    kubernetes = modes.add_parser("kubernetes", help="lead the clusters of namespaces")
    served = kubernetes.add_mutually_exclusive_group()
    served.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="namespace to serve, may be repeated; default: that of the kubeconfig or the pod",
    )
    served.add_argument("--all-namespaces", action="store_true", help="serve all namespaces")
    kubernetes.add_argument(
        "--lease-namespace",
        default="",
        metavar="NAMESPACE",
        help="namespace of the Lease for leader election; default: the served namespace; if there "
        "are several, that of the kubeconfig or the pod",
    )
    kubernetes.add_argument("--kubeconfig", type=Path, help="default: $KUBECONFIG, else the pod")
    kubernetes.add_argument(
        "--lease-seconds",
        type=int,
        choices=range(3, 121),
        metavar="3..120",
        default=ElectionSettings().lease_ms // 1000,
        help="after a crash of the master another one leads after this time; default %(default)s",
    )
    kubernetes.add_argument(
        "--health",
        type=_address_or_off,
        default=(None, HEALTH_PORT),
        metavar="HOST:PORT",
        help="address of /metrics, /healthz, /processz and /readyz, or off; default port "
        f"{HEALTH_PORT} of every address, IPv4 and IPv6",
    )
    kubernetes.add_argument(
        "--validation-image",
        default="",
        metavar="IMAGE",
        help="image of the pods of validations and backups (target spark); default: none are run",
    )
    return parser.parse_args()


def _secrets(arguments: argparse.Namespace) -> Path:
    given: Path | None = arguments.secrets
    return given or arguments.data / "secrets"


def _address(text: str) -> tuple[str, int]:
    return _read(text, may_be_free=True)


def _addresses(text: str) -> list[str]:
    addresses = [each.strip() for each in text.split(",")]
    for each in addresses:
        _read(each)
    return addresses


def _read(text: str, *, may_be_free: bool = False) -> tuple[str, int]:
    try:
        return read_address(text, may_be_free=may_be_free)
    except NotAnAddress as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _address_or_off(text: str) -> tuple[str, int] | None:
    return None if text == "off" else _address(text)


def _loopback_address(text: str) -> tuple[str, int]:
    host, port = _address(text)
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise argparse.ArgumentTypeError(
            f"{text}: the embedded operator does not encrypt and listens on loopback only: "
            "write 127.0.0.1:PORT"
        )
    return host, port


async def _run_embedded(folder: Path, secrets: Path, host: str, port: int) -> None:
    stop = Stopping()
    stop.listen()
    embedded = Embedded(EmbeddedStore.open(folder), DEFAULTS, secrets)
    await embedded.start()
    web_runner = make_runner(embedded, made_token(folder))
    try:
        await web_runner.setup()
        site = web.TCPSite(web_runner, host, port)
        await site.start()
        api_port = web_runner.addresses[0][1]
        _announce(folder / "operator.json", {"pid": os.getpid(), "api_port": api_port})
        _log.info("embedded operator: API on %s:%d, data in %s", host, api_port, folder)
        ends = (stop.wait(), embedded.wait_failed(), keep_collecting())
        waited_for = [asyncio.create_task(each) for each in ends]
        ended, waiting = await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        for task in ended:
            task.result()
    finally:
        await web_runner.cleanup()
        await embedded.close()


async def _run_kubernetes(arguments: argparse.Namespace) -> int:
    # Imported here: the embedded operator needs neither kopf nor the memory that it takes.
    from quorate_operator.kube.access import find_access
    from quorate_operator.kube.scope import make_scope
    from quorate_operator.kubernetes import KubernetesOperator

    access = find_access(arguments.kubeconfig)
    scope = make_scope(
        arguments.namespace,
        arguments.all_namespaces,
        arguments.lease_namespace,
        access.namespace,
    )
    election = scaled(arguments.lease_seconds * 1000)
    operator = KubernetesOperator(access, scope, DEFAULTS, election, arguments.validation_image)
    _log.info(
        "operator %s of %s, Lease in namespace %s",
        operator.identity,
        scope,
        scope.lease_namespace,
    )
    stop = Stopping()
    stop.listen()
    return await operator.run(stop, arguments.health)


def _announce(path: Path, content: dict[str, int]) -> None:
    """Write the file atomically: readers never see half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content) + "\n")
    fresh.replace(path)


if __name__ == "__main__":
    sys.exit(main())
