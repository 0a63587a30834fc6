"""How a real Kubernetes control plane runs for a test: etcd, API server, controller manager.

Everything of a run lives in one folder under the temporary directory, listens on loopback and ends
with the run.  Without `ForNodes` there is no kubelet and no scheduler: no pod ever runs.
"""

import ipaddress
import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from quorate_control_plane.audit import POLICY, AuditLog
from quorate_control_plane.certificates import Authority, KeyPair
from quorate_control_plane.components import Component
from quorate_control_plane.kept_folder import KeptFolder
from quorate_control_plane.objects import Objects
from quorate_control_plane.ports import free_ports

_NAMES = (
    "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1"
)
_SERVICES = "10.96.0.0/24"
_LOST_NODE_S = "10"
_GARBAGE = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""Collected when the heap is five times what is in use, not twice: that took a quarter of the
processor time of the API server.  Above a gigabyte more often again."""
_CONTROLLERS_READY = (
    "/api/v1/namespaces/default/serviceaccounts/default",
    "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
)


@dataclass(frozen=True, slots=True)
class ForNodes:
    """What a control plane needs to lead nodes: `binaries` must have kube-scheduler, too.

    `address` of this machine is one that nodes reach; `services` is the range of cluster IPs.
    """

    address: str
    services: str

    @property
    def api_service(self) -> str:
        """The cluster IP of the Service kubernetes: the first of the range."""
        return str(ipaddress.ip_network(self.services)[1])


class ControlPlane:
    """A control plane; `with ControlPlane(binaries) as control_plane:` starts and ends it.

    `crds`: a folder of manifests to be known before the controller manager starts.  Later ones work
    too, but it reads discovery every 30 s only: children of their objects would be collected late.
    """

    def __init__(
        self,
        binaries: Mapping[str, Path],
        *,
        crds: Path | None = None,
        for_nodes: ForNodes | None = None,
    ) -> None:
        self._binaries = binaries
        self._crds = crds
        self._for_nodes = for_nodes
        self._address = for_nodes.address if for_nodes else "127.0.0.1"
        self.folder = Path()
        self.kubeconfig = Path()
        self.server = ""
        self.components: dict[str, Component] = {}
        self._kept: KeptFolder | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def audit_log(self) -> AuditLog:
        """The requests of all users of the group `AUDITED`, and of service accounts."""
        return AuditLog(self.folder)

    @property
    def objects(self) -> Objects:
        """All objects, as an administrator reads them.  Cheaper than kubectl, above all to wait."""
        return self._objects

    @property
    def etcd(self) -> Component:
        return self.components["etcd"]

    @property
    def api_server(self) -> Component:
        return self.components["kube-apiserver"]

    @property
    def controller_manager(self) -> Component:
        return self.components["kube-controller-manager"]

    def start(self) -> None:
        """Start everything and wait until it works; on any failure nothing stays behind."""
        self._kept = KeptFolder("quorate-control-plane-")
        self.folder = self._kept.path
        try:
            self._define()
            self.etcd.start()
            self.api_server.start()
            self.wait_ready()
            if self._crds is not None and any(self._crds.glob("*.yaml")):
                self.kubectl("apply", "--filename", str(self._crds))
                self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
            self.controller_manager.start()
            if self._for_nodes is not None:
                self.components["kube-scheduler"].start()
            self.wait_controllers_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process and remove the folder, whatever state they are in."""
        if self._kept is None:
            return
        self._kept.close()
        self._kept = None
        if self.components:
            self._objects.close()
        for component in self.components.values():
            component.forget()

    def wait_ready(self, timeout_s: float = 120) -> None:
        """Wait until the API server says it is ready."""
        self._wait_for(self.api_server, "/readyz", timeout_s)

    def wait_controllers_ready(self, timeout_s: float = 120) -> None:
        """Wait until the controllers have given namespace default what every namespace has."""
        for path in _CONTROLLERS_READY:
            self._wait_for(self.controller_manager, path, timeout_s)

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as an administrator; a failure raises with what kubectl said."""
        command = self.kubectl_command(*arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90)
        if check and done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done

    def drop_namespace(self, name: str) -> None:
        """Delete a namespace whose operator is gone; nothing is waited for.

        An object that waits for the operator would keep it for ever, and the controller that looks
        again and again busy for the rest of the run."""
        kinds, within = "zones,storageclusters", f"--namespace={name}"
        held = self.kubectl("get", kinds, within, "--output=name", check=False).stdout.split()
        if held:
            free = '--patch={"metadata":{"finalizers":null}}'
            self.kubectl("patch", *held, within, "--type=merge", free, check=False)
        self.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def kubectl_command(self, *arguments: str) -> list[str]:
        """The command line of kubectl as an administrator."""
        command = [str(self._binaries["kubectl"]), f"--kubeconfig={self.kubeconfig}"]
        return [*command, f"--cache-dir={self.folder / 'kubectl'}", *arguments]

    def kubeconfig_for(self, user: str, *groups: str) -> Path:
        """A kubeconfig file for one more user, who may do what RBAC grants and no more."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        name = user.replace(":", "-")
        pair = self._authority.issue(name, subject, f"DNS:{name}")
        return self._authority.kubeconfig(name, pair, self.server)

    def serving_pair(self, name: str, names: str) -> KeyPair:
        """A key and certificate for a server of this run ("DNS:host,IP:address")."""
        return self._authority.issue(f"{name}-serving", f"/CN={name}", names)

    @property
    def authority(self) -> Path:
        """The certificate of the authority that all certificates of this run are from."""
        return self._authority.pair.certificate

    # -- how it is put together --------------------------------------------------------------------

    def _define(self) -> None:
        ports = free_ports()
        api_port = next(free_ports(self._address))
        etcd_url = f"http://127.0.0.1:{next(ports)}"
        peer_url = f"http://127.0.0.1:{next(ports)}"
        self.server = f"https://{self._address}:{api_port}"
        self._authority = Authority(self.folder / "pki")
        admin = self._authority.issue("admin", "/O=system:masters/CN=admin", "DNS:admin")
        self.kubeconfig = self._authority.kubeconfig("admin", admin, self.server)
        context = _client_context(self._authority.pair, admin)
        self._web = _web_client(context)
        self._objects = Objects(f"{self._address}:{api_port}", context)
        self._add("etcd", self._etcd_flags(etcd_url, peer_url))
        self._add("kube-apiserver", self._api_server_flags(etcd_url, api_port))
        self._add("kube-controller-manager", self._controller_manager_flags(next(ports)))
        if self._for_nodes is not None:
            self._add("kube-scheduler", self._component_flags("kube-scheduler", next(ports)))

    def _add(self, name: str, flags: Mapping[str, str | Path]) -> None:
        command = [str(self._binaries[name])]
        command += [f"--{flag}={value}" for flag, value in flags.items()]
        self.components[name] = Component(name, self.folder, command, {**os.environ, **_GARBAGE})

    def _etcd_flags(self, client_url: str, peer_url: str) -> dict[str, str | Path]:
        return {
            "data-dir": self.folder / "etcd",
            "unsafe-no-fsync": "true",  # a power loss ends the test anyway
            "log-level": "warn",
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": peer_url,
            "initial-advertise-peer-urls": peer_url,
            "initial-cluster": f"default={peer_url}",
        }

    def _api_server_flags(self, etcd_url: str, port: int) -> dict[str, str | Path]:
        nodes = self._for_nodes
        names = _NAMES + (f",IP:{nodes.address},IP:{nodes.api_service}" if nodes else "")
        serving = self._authority.issue("apiserver", "/CN=kube-apiserver", names)
        accounts = self._authority.issue("accounts", "/CN=accounts", "DNS:accounts")
        policy = self.folder / "audit-policy.json"
        policy.write_text(POLICY)
        return {
            "etcd-servers": etcd_url,
            "bind-address": self._address,
            "advertise-address": self._address,
            # Only nodes need the endpoints, and of loopback Kubernetes 1.37 takes none.
            "endpoint-reconciler-type": "lease" if nodes else "none",
            "secure-port": str(port),
            "tls-cert-file": serving.certificate,
            "tls-private-key-file": serving.key,
            "client-ca-file": self._authority.pair.certificate,
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "audit-policy-file": policy,
            "audit-log-path": self.audit_log.file,
            "audit-log-mode": "blocking",  # whoever has an answer finds its line
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": accounts.certificate,
            "service-account-signing-key-file": accounts.key,
            "service-cluster-ip-range": nodes.services if nodes else _SERVICES,
            "profiling": "false",
            **(self._kubelet_flags() if nodes else {}),
        }

    def _kubelet_flags(self) -> dict[str, str | Path]:
        """How the API server reaches kubelets, and how soon pods leave a node that is lost."""
        client = self._authority.issue(
            "kubelet-client", "/O=system:masters/CN=kubelet-client", "DNS:kubelet-client"
        )
        return {
            "kubelet-client-certificate": client.certificate,
            "kubelet-client-key": client.key,
            "kubelet-certificate-authority": self._authority.pair.certificate,
            "kubelet-preferred-address-types": "InternalIP",
            "default-not-ready-toleration-seconds": _LOST_NODE_S,
            "default-unreachable-toleration-seconds": _LOST_NODE_S,
        }

    def _component_flags(self, name: str, port: int) -> dict[str, str | Path]:
        """What the programs beside the API server are told alike."""
        pair = self._authority.issue(name, f"/CN=system:{name}", "DNS:localhost")
        kubeconfig = self._authority.kubeconfig(name, pair, self.server)
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": "127.0.0.1",
            "secure-port": str(port),
            "leader-elect": "false",
            "profiling": "false",
        }

    def _controller_manager_flags(self, port: int) -> dict[str, str | Path]:
        return {
            **self._component_flags("kube-controller-manager", port),
            "node-monitor-period": "1s",
            "node-monitor-grace-period": f"{_LOST_NODE_S}s",
            "use-service-account-credentials": "true",
            "service-account-private-key-file": self.folder / "pki" / "accounts.key",
            "root-ca-file": self._authority.pair.certificate,
            "kube-api-qps": "500",  # the default of 20 a second makes the start 5 s longer
            "kube-api-burst": "1000",
        }

    # -- asking it ---------------------------------------------------------------------------------

    def _get(self, path: str) -> bool:
        try:
            with self._web.open(self.server + path, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:  # refused, time-out, or an HTTP status that says not yet
            return False

    def _wait_for(self, component: Component, path: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._get(path):
            for each in (self.etcd, self.api_server, component):
                if not each.is_alive():
                    raise RuntimeError(f"{each.name} does not run: {each.log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {path} in {timeout_s} s: {component.log_tail()}")
            time.sleep(0.05)


def _client_context(authority: KeyPair, client: KeyPair) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(client.certificate, client.key)
    return context


def _web_client(context: ssl.SSLContext) -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}),  # loopback, whatever the environment says of proxies
        urllib.request.HTTPSHandler(context=context),
    )
