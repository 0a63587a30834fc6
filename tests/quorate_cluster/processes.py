"""One agent or operator as a process: how it is started, and where it then listens."""

import json
import os
import re
import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from quorate.facts.addresses import join_address
from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_link.secret import make_secret

HOST = "127.0.0.1"
SECRETS = "secrets"
START_S_MAX = 30.0
_ROOT = Path(__file__).parents[2]
# Loopback, whatever the environment says of proxies.
_web = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_COMPONENTS = ("core", "operator", "node_agent", "spark", "cli")


def environment(root: Path = _ROOT) -> dict[str, str]:
    """This environment, with the code in `root`, this very project's, before any other.

    Processes of tests are in no pod, also where the tests are."""
    paths = [str(root / name) for name in _COMPONENTS]
    paths += filter(None, [os.environ.get("PYTHONPATH")])
    kept = {name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def python(module: str, *arguments: str) -> list[str]:
    """The command line of one of the project's modules; the standard library's `operator` wins."""
    return [sys.executable, "-P", "-m", module, *arguments]


def secret_file(folder: Path, cluster: str) -> Path:
    """Path of the cluster's secret, which is made if it is missing."""
    file = folder / SECRETS / f"{cluster}.json"
    make_secret(file)
    return file


def secret_manifest(folder: Path, cluster: str) -> dict[str, Any]:
    """The cluster's secret as a Secret, for an operator on Kubernetes."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{cluster}-quorate"},
        "stringData": json.loads(secret_file(folder, cluster).read_text()),
    }


def asked(host: str, port: int, path: str) -> tuple[int, str]:
    """The answer to a GET over HTTP: status and text; URLError where nobody listens."""
    try:
        with _web.open(f"http://{join_address(host, port)}{path}", timeout=10) as said:
            return said.status, said.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


class Listening(Component):
    """A process that writes `data/FILE.json` with its pid once it listens."""

    def __init__(
        self, name: str, folder: Path, file: str, command: list[str], prefix: Sequence[str]
    ) -> None:
        super().__init__(name, folder, [*prefix, *command], environment())
        self._data = folder / name
        self._file = file
        self._has_own_view = bool(prefix)

    @property
    def data(self) -> Path:
        """The process's folder, as it sees it: a prefix may have mounted a file system there."""
        if not self._has_own_view:
            return self._data
        return Path(f"/proc/{self.pid}/root{self._data}")

    def start(self, *, wait: bool = True) -> None:
        """Start it with the same ports and data as before, and wait until it listens; nothing if it
        runs."""
        super().start()
        if wait:
            self.wait_listening()

    def run_sources(self, root: Path | None = None) -> None:
        """From its next start on it runs the code in `root`; None: this very project's."""
        self._environment = environment(root or _ROOT)

    def interrupt(self) -> None:
        """SIGTERM without waiting for its end; nothing if it does not run."""
        if self.is_alive():
            os.kill(self.pid, signal.SIGTERM)

    def resume_or_start(self) -> None:
        """Whatever was done to it: let it run."""
        if self.is_alive():
            self.resume()
        self.start()

    def wait_listening(self) -> None:
        """Wait until it listens; RuntimeError with its log when it ended instead."""
        wait_until(
            lambda: not self.is_alive() or self.address() is not None,
            f"listening {self.name}",
            START_S_MAX,
            self.log_tail,
        )
        if not self.is_alive():
            raise RuntimeError(f"{self.name} ended while it started:\n{self.log_tail()}")

    def address(self) -> dict[str, Any] | None:
        """What the running process wrote when it listened; None when it does not (yet)."""
        try:
            found = dict[str, Any](json.loads((self.data / self._file).read_text()))
            return found if found["pid"] == self.pid else None
        except (OSError, ValueError, RuntimeError):  # the last: it does not run
            return None


class Agent(Listening):
    """One agent.  It listens at the same ports after a restart, unless it was moved; `admin_port`
    is the present process's."""

    def __init__(
        self,
        name: str,
        folder: Path,
        cluster: str,
        peer_port: int,
        client_port_base: int,
        *,
        host: str = HOST,
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        command = python("quorate_agent", "--name", name, "--data", str(folder / name))
        command += ["--cluster", cluster, "--secret-file", str(secret_file(folder, cluster))]
        self._whole = [*prefix, *command]
        self._options = options
        super().__init__(name, folder, "agent.json", command, prefix)
        self.move(host, peer_port, client_port_base)

    def move(self, host: str, peer_port: int, client_port_base: int, name: str = "") -> None:
        """From its next start on it listens on this host and these ports.  `name`: what others are
        told instead of the host."""
        self.host, self.peer_port, self._told = host, peer_port, name or host
        at = ["--peer", join_address(host, peer_port), "--client-host", host]
        at += ["--client-port-base", str(client_port_base), "--admin", join_address(host, 0)]
        if name:
            at += ["--announce-peer", name, "--announce-client-host", name]
        self._command = [*self._whole, *at, *self._options]

    @property
    def admin_port(self) -> int:
        address = self.address()
        assert address is not None
        return int(address["admin_port"])

    @property
    def peer_address(self) -> str:
        return join_address(self._told, self.peer_port)

    def asked(self, path: str) -> tuple[int, str]:
        """Ask its admin port; return status and text."""
        return asked(self.host, self.admin_port, path)

    def metrics(self, name: str, **labels: str) -> list[float]:
        """What /metrics says now of every series of this name that has these labels."""
        lines = self.asked("/metrics")[1].splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return [
            float(line.rpartition(" ")[2])
            for line in lines
            if re.match(rf"{name}[{{ ]", line) and all(each in line for each in wanted)
        ]

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """Seconds of CPU time, user and system, since the process started."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Operator(Listening):
    """The embedded operator; its API keeps its port over restarts."""

    def __init__(
        self, folder: Path, api_port: int, *, host: str = HOST, prefix: Sequence[str] = ()
    ) -> None:
        self.api_port = api_port
        command = python("quorate_operator", "embedded", "--data", str(folder / "operator"))
        command += ["--api", join_address(host, api_port), "--secrets", str(folder / SECRETS)]
        super().__init__("operator", folder, "operator.json", command, prefix)
