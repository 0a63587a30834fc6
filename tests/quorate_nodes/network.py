"""The network of one cluster: a bridge of this machine's, on which each node hangs.

Of a range 10.N.0.0/16 that nothing uses: `10.N.0.254` is this machine, `10.N.0.I` node I,
`10.N.(128+I).0/24` its pods, `10.N.64.0/24` cluster IPs.  No route leads anywhere else: pods do not
leave this machine.
"""

import ipaddress
import json
import os
import subprocess

from quorate_control_plane.kept_folder import KeptFolder
from quorate_nodes.programs import SYSTEM_PATH

_SECOND_BYTES = range(201, 251)
_PODS_FIRST = 128


def run_ip(*arguments: str) -> str:
    """`ip ARGUMENTS`; RuntimeError with what it said when it fails."""
    done = _ip(*arguments)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr}")
    return done.stdout


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": SYSTEM_PATH}
    return subprocess.run(["ip", *arguments], env=environment, capture_output=True, text=True)


class Network:
    """A bridge with a name and a range of its own, until `kept` is closed."""

    def __init__(self, kept: KeptFolder) -> None:
        number = _claim()
        self.name = f"quorate-{number}"
        self._kept = kept
        self._number = number
        kept.undo_at_end("ip", "link", "del", self.name)
        self._prefix = f"10.{number}"
        run_ip("address", "add", f"{self.machine}/24", "dev", self.name)
        run_ip("link", "set", self.name, "up")

    @property
    def machine(self) -> str:
        """The address of this machine, where nodes find the API server and the DNS."""
        return f"{self._prefix}.0.254"

    @property
    def nodes(self) -> str:
        """A range that holds this machine and every node, and no pod."""
        return f"{self._prefix}.0.0/24"

    @property
    def services(self) -> str:
        """The range of cluster IPs."""
        return f"{self._prefix}.64.0/24"

    @property
    def all_pods(self) -> str:
        """A range that holds the pods of every node, and no node."""
        return f"{self._prefix}.{_PODS_FIRST}.0/17"

    def node(self, number: int) -> str:
        """The address of a node; they count from 1."""
        return f"{self._prefix}.0.{number}"

    def pods(self, number: int) -> str:
        """The range of the pods of a node."""
        return f"{self._prefix}.{_PODS_FIRST + number}.0/24"

    def plug_in(self, number: int, process: int) -> None:
        """Give the network namespace of `process` an interface eth0 on the bridge."""
        own_end = f"{self.name}-{number}"
        hardware = f"0a:00:0a:{self._number:02x}:00:{number:02x}"  # the same each time it is on
        peer = ("peer", "name", "eth0", "address", hardware, "netns", str(process))
        self._kept.undo_at_end("ip", "link", "del", own_end)
        run_ip("link", "add", own_end, "type", "veth", *peer)
        run_ip("link", "set", own_end, "master", self.name, "up")
        run_ip("route", "replace", self.pods(number), "via", self.node(number))

    def unplug(self, number: int) -> None:
        """Take a node off the bridge for good: nobody hears from it that its connections end.

        Its namespace may outlive its processes by minutes, for connections that were never closed.
        """
        _ip("link", "del", f"{self.name}-{number}")  # nothing where it is gone already

    def reach_services_by(self, number: int) -> None:
        """Send what this machine has for cluster IPs to that node, whose kube-proxy knows them."""
        run_ip("route", "replace", self.services, "via", self.node(number))


def _claim() -> int:
    """Make a bridge quorate-N whose range is free, and return N.  Two runs never have the same."""
    told = json.loads(run_ip("-json", "-4", "route", "show", "table", "all"))
    taken = [ipaddress.ip_network(each["dst"]) for each in told if each["dst"] != "default"]
    for number in _SECOND_BYTES:
        whole = ipaddress.ip_network(f"10.{number}.0.0/16")
        if any(whole.overlaps(each) for each in taken):
            continue
        if _ip("link", "add", f"quorate-{number}", "type", "bridge").returncode == 0:
            return number
    raise RuntimeError("10.201.0.0/16 to 10.250.0.0/16 are all in use, or no bridge can be made")
