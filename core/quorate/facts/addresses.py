"""Addresses as users write them: HOST:PORT, a host being an IPv4 or IPv6 address or a DNS name."""

import ipaddress
import re

_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
NAME_LENGTH_MAX = 253


def split_address(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 host stands in brackets."""
    host, _, port = address.rpartition(":")
    return bare_host(host), int(port)


def bare_host(host: str) -> str:
    """The host without the brackets in which an IPv6 address may stand."""
    return host.removeprefix("[").removesuffix("]")


def join_address(host: str, port: int) -> str:
    """HOST:PORT of a bare host."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """The host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_ip(host: str) -> bool:
    """Whether the host is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_any(host: str) -> bool:
    """Whether the host means every address of the machine (0.0.0.0, ::), so that none can be
    dialed by it."""
    return is_ip(host) and ipaddress.ip_address(host).is_unspecified


def is_dialable(host: str) -> bool:
    """Whether others can be told to dial the host: an address of one machine, or a DNS name."""
    if is_ip(host):
        return not is_any(host)
    return len(host) <= NAME_LENGTH_MAX and _NAME.fullmatch(host) is not None
