"""Addresses as users write them: HOST:PORT, where HOST is an IPv4 or IPv6 address or a DNS name."""

import ipaddress
import re

from quorate.facts.errors import QuorateError

_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"  # at most 63 characters
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*\.?")
NAME_LENGTH_MAX = 253
PORT_MAX = 65535
WAY_OUT = "write host:port, for example 10.0.0.7:7100 or [fd00::7]:7100"


class NotAnAddress(QuorateError):
    """A text that is not a valid host:port. The message names the way out."""


def read_address(text: str, *, may_be_free: bool = False) -> tuple[str, int]:
    """Return the bare host and the port of a text that a user wrote. Raises NotAnAddress.

    An IPv6 host must stand in brackets, and no other host may. `may_be_free`: port 0 is allowed;
    the system then chooses one.
    """
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_bracketed else host
    is_host = is_ip(bare) if ":" in bare else is_ip(bare) or is_name(bare)
    is_port = port.isascii() and port.isdecimal() and len(port) <= len(str(PORT_MAX))
    is_port = is_port and (0 if may_be_free else 1) <= int(port) <= PORT_MAX
    if not is_host or not is_port or is_bracketed != (":" in bare):
        free = " (port 0: a free one)" if may_be_free else ""
        raise NotAnAddress(f"{text!r} is not an address: {WAY_OUT}{free}")
    return bare, int(port)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of a HOST:PORT that is known to be valid, the host without brackets."""
    host, _, port = address.rpartition(":")
    return bare_host(host), int(port)


def bare_host(host: str) -> str:
    """Return the host without the brackets of an IPv6 address."""
    return host.removeprefix("[").removesuffix("]")


def join_address(host: str, port: int) -> str:
    """Return HOST:PORT of a bare host."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """Return the host as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_ip(host: str) -> bool:
    """Return whether the host is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_any(host: str) -> bool:
    """Return whether the host stands for all addresses of the machine (0.0.0.0, ::).

    It cannot be dialed then.
    """
    return is_ip(host) and ipaddress.ip_address(host).is_unspecified


def is_dialable(host: str) -> bool:
    """Return whether others can dial the host: an address of one machine, or a DNS name."""
    if is_ip(host):
        return not is_any(host)
    return is_name(host)


def is_name(host: str) -> bool:
    """Return whether the host is a DNS name."""
    return len(host) <= NAME_LENGTH_MAX and _NAME.fullmatch(host) is not None
