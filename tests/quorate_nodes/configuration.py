"""What the programs of a node are told: files of containerd, CNI, kubelet and kube-proxy."""

import json
from pathlib import Path
from typing import Any

from quorate_nodes.network import Network
from quorate_nodes.programs import CNI_PLUGINS

PAUSE_IMAGE = "localhost/pause:1"
CLUSTER_DOMAIN = "cluster.local"
_NEVER = "0%"

_CONTAINERD = """
version = 2
disabled_plugins = [{disabled}]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  # Root may lack the right to lower it, as in many a virtual machine; runc fails then.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}"
"""
_DISABLED = [f"snapshotter.v1.{name}" for name in ("btrfs", "zfs", "aufs", "devmapper")]
_DISABLED += ["internal.v1.opt"]


def containerd(cni: Path) -> str:
    """`cni`: the folder with the network's configuration."""
    disabled = ", ".join(f'"io.containerd.{name}"' for name in _DISABLED)
    return _CONTAINERD.format(disabled=disabled, pause=PAUSE_IMAGE, plugins=CNI_PLUGINS, folder=cni)


def pod_network(network: Network, number: int) -> str:
    """Pods hang on a bridge of the node, which routes."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": network.pods(number)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,  # a pod reaches itself by a Service
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]})


def kubelet(
    network: Network,
    number: int,
    *,
    cgroup: str,
    authority: Path,
    key: Path,
    certificate: Path,
    resolv_conf: Path,
) -> str:
    """Leases every 2 s, and changed Secrets in pods within seconds; nothing is evicted."""
    told: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node(number),
        "readOnlyPort": 0,
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxPods": 50,
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [network.machine],
        "resolvConf": str(resolv_conf),
        "evictionHard": {
            f"{what}.{of}": _NEVER
            for what, of in (
                ("memory", "available"),
                ("nodefs", "available"),
                ("nodefs", "inodesFree"),
                ("imagefs", "available"),
                ("imagefs", "inodesFree"),
            )
        },
        "imageGCHighThresholdPercent": 100,  # images were loaded once: none may go
        "imageGCLowThresholdPercent": 99,
        "nodeLeaseDurationSeconds": 8,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "10s",
        "syncFrequency": "10s",
    }
    return json.dumps(told)  # JSON is YAML


def kube_proxy(network: Network, number: int, kubeconfig: Path) -> str:
    """It changes no setting of the machine's connection tracking."""
    told: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "bindAddress": network.node(number),
        "healthzBindAddress": "",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "clusterCIDR": network.all_pods,
        "hostnameOverride": node_name(number),
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }
    return json.dumps(told)


def node_name(number: int) -> str:
    """Nodes count from 1."""
    return f"node-{number}"


def dns(address: str, kubeconfig: Path) -> str:
    """The Corefile: names of the cluster as a kubeadm cluster has them, and no others."""
    return f"""
{CLUSTER_DOMAIN} in-addr.arpa:53 {{
  bind {address}
  errors
  kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
    kubeconfig {kubeconfig} test
    pods insecure
    ttl 30
  }}
}}
.:53 {{
  bind {address}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
