"""The command line of an agent."""

import argparse
import os
import re
from pathlib import Path

from quorate.facts.addresses import (
    NotAnAddress,
    bare_host,
    bracketed,
    is_any,
    is_dialable,
    is_ip,
    read_address,
)
from quorate.facts.topology import STORAGE_PROFILES
from quorate.planning.target.label_selector import NAME, VALUE
from quorate_agent.clients.memory import SETTING
from quorate_agent.process.settings import (
    ASIDE_SHARE,
    CLIENT_MEMORY_SHARE,
    GRACE_S,
    LINGER_IN_POD_S,
    AgentSettings,
)

PORT_MAX = 65535
LABEL_LENGTH_MAX = 63
ATTRIBUTES_BYTES_MAX = 4096
"""They are sent before the other side has proven itself, in a frame of 8 KiB."""
WHAT_IT_DOES = "`quorate-agent`: one agent process."


def read_arguments(words: list[str] | None) -> argparse.Namespace:
    """Parse and check the command line; end the process with a message if it cannot be followed.

    `told_peer` and `told_client_host` are what others are told, whether given or taken from where
    the agent listens."""
    parser = _parser()
    given = parser.parse_args(words)
    host, port = given.announce_peer or (given.peer[0], 0)
    given.told_peer = (host, port)
    given.told_client_host = given.announce_client_host or given.client_host
    for listens, told, way_out in (
        ("--peer", host, "--announce-peer"),
        ("--client-host", given.told_client_host, "--announce-client-host"),
    ):
        if is_any(told):
            parser.error(
                f"{listens} {bracketed(told)} means every address of this machine, and others have"
                f" to be told one: add {way_out} with an address or a DNS name"
            )
    if problem := _external_problem(given) or _attributes_problem(given):
        parser.error(problem)
    return given


def _external_problem(given: argparse.Namespace) -> str:
    """Return what is wrong with the external listener's options; empty if nothing is."""
    offset, ports = given.external_port_offset, given.client_ports_from_master
    if given.announce_external_host and not offset:
        return (
            f"--announce-external-host {given.announce_external_host}: no port is listened on for"
            " clients outside: add --external-port-offset"
        )
    if offset and ports and ports[0] <= ports[1] - offset:
        return (
            f"--external-port-offset {offset} leads from a port of --client-ports-from-master"
            f" {ports[0]}-{ports[1]} to another one of them: write"
            f" {ports[1] - ports[0] + 1} or more"
        )
    last = ports[1] if ports else given.client_port_base
    if last + offset > PORT_MAX:
        return (
            f"--external-port-offset {offset} leads from client port {last} above {PORT_MAX}:"
            " write a smaller one"
        )
    return ""


def _attributes_problem(given: argparse.Namespace) -> str:
    """Return what is wrong with all attributes together; empty if nothing is."""
    names = [name for name, _ in given.attribute]
    if twice := [name for name in names if names.count(name) > 1]:
        return f"--attribute {twice[0]} is given twice: write each attribute once"
    told = [*(f"{name}={value}" for name, value in given.attribute), *given.storage_profile]
    if len("".join(told)) > ATTRIBUTES_BYTES_MAX:
        return f"--attribute and --storage-profile have more than {ATTRIBUTES_BYTES_MAX} bytes"
    return ""


def settings_of(given: argparse.Namespace) -> AgentSettings:
    """Return the settings that `read_arguments` found."""
    return AgentSettings(
        name=given.name,
        data=given.data,
        cluster=given.cluster,
        peer_host=given.peer[0],
        peer_port=given.peer[1],
        told_peer_host=given.told_peer[0],
        told_peer_port=given.told_peer[1],
        client_host=given.client_host,
        told_client_host=given.told_client_host,
        admin_host=given.admin[0],
        admin_port=given.admin[1],
        client_port_base=given.client_port_base,
        client_ports=given.client_ports_from_master,
        failure_domain=given.failure_domain,
        weight=given.weight,
        client_memory_share=given.client_memory_share,
        debug_commands=given.debug_commands,
        believe_term=given.believe_term,
        grace_s=given.grace_seconds,
        linger_s=given.linger_seconds,
        disk_reserve=given.disk_reserve,
        aside_share=given.aside_share,
        external_port_offset=given.external_port_offset,
        told_external_host=given.announce_external_host or "",
        attributes=dict(given.attribute),
        storage_profiles=tuple(sorted({*given.storage_profile})) or STORAGE_PROFILES,
    )


def _own_address(text: str) -> tuple[str, int]:
    """Return host and port of where this agent listens.

    The host may be an IPv6 address without brackets: a pod's command line can only put the port
    behind `$(POD_IP)`, whatever that is.
    """
    host, _, port = text.rpartition(":")
    return _address(f"[{host}]:{port}" if ":" in host and is_ip(host) else text)


def _address(text: str) -> tuple[str, int]:
    try:
        return read_address(text, may_be_free=True)
    except NotAnAddress as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _told_address(text: str) -> tuple[str, int]:
    """Return host and port; port 0: the one that the agent listens on."""
    has_port = text.rpartition(":")[2].isdecimal() and (text.count(":") == 1 or "]:" in text)
    host, port = _address(text) if has_port else (bare_host(text), 0)
    return _told_host(host), port


def _told_host(text: str) -> str:
    host = bare_host(text)
    if not is_dialable(host):
        raise argparse.ArgumentTypeError(
            f"{text!r}: write an address that others can dial or a DNS name, for example 10.0.0.7,"
            " fd00::7 or agent-1.main.svc"
        )
    return host


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 65536:
        return int(first), int(last)
    raise argparse.ArgumentTypeError(f"{text!r}: write FIRST-LAST, for example 7000-7999")


def _offset(text: str) -> int:
    if text.isdecimal() and 0 < int(text) <= PORT_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r}: write a number of ports, for example 1000")


def _attribute(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    is_label = sign and re.fullmatch(NAME, name) and re.fullmatch(VALUE, value)
    if is_label and max(len(name.rpartition("/")[2]), len(value)) <= LABEL_LENGTH_MAX:
        return name, value
    raise argparse.ArgumentTypeError(
        f"{text!r}: write NAME=VALUE as in a label of Kubernetes, for example region=EU"
    )


def _profile(text: str) -> str:
    if text and len(text) <= LABEL_LENGTH_MAX and re.fullmatch(VALUE, text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r}: write a name of letters and digits, as nvme")


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number above 0 and up to 1, as 0.2")
    return share


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= 86_400.0:
        raise argparse.ArgumentTypeError(f"{text!r}: write seconds, from 0 to 86400")
    return seconds


_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def _size(text: str) -> int:
    number = text.rstrip("KMGi")
    unit = _UNITS.get(text.removeprefix(number))
    if unit is None or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes, or for example 512Mi or 2Gi")
    return int(number) * unit


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quorate-agent", description=WHAT_IT_DOES)
    parser.add_argument("--name", required=True, help="unique among the cluster's agents")
    parser.add_argument("--data", required=True, type=Path, help="the data folder")
    parser.add_argument("--cluster", required=True, help="name of the cluster")
    parser.add_argument(
        "--secret-file",
        required=True,
        type=Path,
        metavar="FILE",
        help="file of the cluster's secret, the same for the operator and all agents; connections"
        " that do not prove to know it are closed",
    )
    _add_addresses(parser)
    parser.add_argument("--failure-domain", default="")
    parser.add_argument("--weight", type=int, default=1)
    parser.add_argument(
        "--attribute",
        type=_attribute,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="by its attributes a zone's dataNodesFilter chooses an agent; once for each",
    )
    parser.add_argument(
        "--storage-profile",
        type=_profile,
        action="append",
        default=[],
        metavar="NAME",
        help="kind of storage that the agent offers to zones with this storageProfile; once for"
        f" each (default: {' and '.join(STORAGE_PROFILES)})",
    )
    parser.add_argument(
        "--grace-seconds",
        type=_seconds,
        default=GRACE_S,
        metavar="SECONDS",
        help="the agent ends at most this long after SIGTERM; until a few seconds before that it"
        " waits for other agents to take over its primaries (default: %(default)g)",
    )
    parser.add_argument(
        "--linger-seconds",
        type=_seconds,
        default=LINGER_IN_POD_S if "KUBERNETES_SERVICE_HOST" in os.environ else 0.0,
        metavar="SECONDS",
        help="the agent accepts clients for at least this long after SIGTERM, because a Service"
        f" still sends some (default: {LINGER_IN_POD_S:g} in a pod of Kubernetes, else 0)",
    )
    parser.add_argument(
        "--disk-reserve",
        type=_size,
        metavar="BYTES",
        help="space reserved on the disk of the data folder: with less free, writes are refused"
        " with -MISCONF; with less than 32Mi, or half of a smaller reserve, copies take no more"
        " updates (default: 5 %% of the disk, from 256Mi to 4Gi; of a small disk a sixth, at least"
        " 32Mi)",
    )
    parser.add_argument(
        "--aside-share",
        type=_share,
        default=ASIDE_SHARE,
        metavar="SHARE",
        help="share of the data folder's disk for rows that resets have left: above it, the oldest"
        " are dropped before their 24 hours (default: %(default)s)",
    )
    parser.add_argument(
        "--debug-commands", action="store_true", help="allow damaging a copy on purpose"
    )
    parser.add_argument(
        "--believe-term",
        type=int,
        default=0,
        metavar="TERM",
        help="use it once if a master was refused because its term is too far above the terms that"
        " this agent knows, and there really were so many masterships",
    )
    parser.add_argument(
        SETTING,
        type=_share,
        default=CLIENT_MEMORY_SHARE,
        metavar="SHARE",
        help="share of the memory limit (cgroup, else the machine's) for commands that clients have"
        " sent and replies that they have not read: above it, large commands are refused with -OOM,"
        " and if unread replies fill the rest, the connections that hold the most are closed"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--set-aside",
        default="",
        metavar="REASON",
        help="move the contents of the data folder to set-aside-N in it, and end: the next start"
        " has a new store, which the other owners fill",
    )
    parser.add_argument(
        "--put-back",
        type=int,
        default=0,
        metavar="N",
        help="put set-aside-N of the data folder back, and end. Only for partitions all of whose"
        " stores are gone for good: writes acknowledged since, or lost before, are missing",
    )
    return parser


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--peer",
        type=_own_address,
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="address to listen on for the operator and other agents (default: 127.0.0.1 and a free"
        " port)",
    )
    parser.add_argument(
        "--announce-peer",
        type=_told_address,
        metavar="HOST[:PORT]",
        help="address that other agents dial: an IP address or a DNS name, which they look up each"
        " time (default: the host and port of --peer)",
    )
    parser.add_argument(
        "--client-host",
        type=bare_host,
        default="127.0.0.1",
        metavar="HOST",
        help="host to listen on for clients (default: %(default)s)",
    )
    parser.add_argument(
        "--announce-client-host",
        type=_told_host,
        metavar="HOST",
        help="host that clients dial: an IP address or a DNS name (default: --client-host)",
    )
    parser.add_argument(
        "--client-port-base",
        type=int,
        default=7000,
        metavar="PORT",
        help="each zone listens for clients on the first free port from here on (default:"
        " %(default)s)",
    )
    parser.add_argument(
        "--client-ports-from-master",
        type=_range,
        metavar="FIRST-LAST",
        help="instead, each zone listens on the port of this range that the operator gave it, the"
        " same on all agents",
    )
    parser.add_argument(
        "--external-port-offset",
        type=_offset,
        default=0,
        metavar="PORTS",
        help="each zone also listens on its client port plus this number; clients that connect"
        " there are told external addresses (default: it does not)",
    )
    parser.add_argument(
        "--announce-external-host",
        type=_told_host,
        metavar="HOST",
        help="host that clients of these external ports dial; the port is the one listened on"
        " (default: host and port come from the operator)",
    )
    parser.add_argument(
        "--admin",
        type=_own_address,
        default=("127.0.0.1", 0),
        metavar="HOST:PORT",
        help="address of /metrics, /startupz, /healthz and /readyz (default: 127.0.0.1 and a free"
        " port)",
    )
