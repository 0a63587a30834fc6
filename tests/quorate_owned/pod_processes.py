"""Pods of managed agents as processes of this machine: what a kubelet does, without containers.

Each pod has a loopback address of its own, on which its agent listens at the ports of the manifest.
Flags are those of the pod template; only the folders are others, one for each claim.  A name leads
to the pod's address for processes that are started with the prefix of `Names`.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import threading
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quorate_cluster.names import Names
from quorate_cluster.processes import asked, environment, python
from quorate_cluster.road import Road
from quorate_control_plane.components import Component
from quorate_operator.owned.agent_names import service_name
from quorate_operator.owned.agent_pod import ADMIN_PORT, DATA
from quorate_operator.owned.pod_parts import SECRET
from quorate_owned.facts import waiting

MISSING_IMAGE = "none"
"""The tag of an image that no registry has."""
_POLL_S = 0.3

Json = dict[str, Any]


class PodProcesses:
    """Runs the pods of the managed clusters of one namespace, from `start` to `close`."""

    def __init__(self, road: Road, names: Names) -> None:
        self._road = road
        self._names = names
        self._network = zlib.crc32(road.namespace.encode())
        self.running: dict[str, tuple[str, Component]] = {}
        """pod -> its uid and process."""
        self._ending: dict[str, Component] = {}
        self._told: dict[str, tuple[str, bool]] = {}
        self._lost: dict[str, str] = {}
        """Uid of a claim whose volume nobody reaches any more -> name of that volume."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self.problem: BaseException | None = None
        """What ended the thread before its time."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; the processes end with the folder of the road."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._lost:
            which = ("persistentvolume", *self._lost.values())
            self._road.kubectl("delete", *which, "--ignore-not-found", "--wait=false")
        if self.problem is not None:
            raise RuntimeError("pods were not kept") from self.problem

    @property
    def processes(self) -> int:
        """How many run, those that are ending included."""
        return len(self.running) + len(self._ending)

    def logs(self) -> str:
        """The last lines of each process, how it ended if it has, and what ended the thread."""
        said = [] if self.problem is None else [f"pods are not kept any more: {self.problem!r}"]
        for process in [*(each for _, each in self.running.values()), *self._ending.values()]:
            state = "runs" if process.is_alive() else f"ended with {process.exit_status}"
            said.append(f"--- {process.name}, which {state} ---\n{process.log_tail()}")
        return "\n".join(said)

    def forget(self) -> None:
        """Collect exit statuses, once the folder of the road has ended the processes."""
        for process in [*self._ending.values(), *(each for _, each in self.running.values())]:
            process.forget()

    def lose(self, pod: str) -> None:
        """Do as when the pod's node is powered off, and then deleted for good.

        Kubernetes deletes the pod without its kubelet.  The next pod of this name is Pending as
        long as it mounts this claim: the volume was on that node, and its data is gone."""
        found = self._road.get("pod", pod)
        assert found is not None
        name = _claim(found)
        claim = self._road.get("persistentvolumeclaim", name)
        assert claim is not None
        uid = claim["metadata"]["uid"]
        self._lost[uid] = f"{self._road.namespace}-{name}"
        volume = _local_volume(self._lost[uid], self._road.namespace, claim)
        self._road.kubectl("create", "--filename=-", stdin=json.dumps(volume))
        bound = "--for=jsonpath={.status.phase}=Bound"
        self._road.kubectl("wait", bound, f"persistentvolumeclaim/{name}", "--timeout=60s")
        _, process = self.running[pod]
        process.kill()
        shutil.rmtree(self._folder(pod, uid))
        self._road.kubectl("delete", "pod", pod, "--force", "--grace-period=0")

    def _folder(self, pod: str, volume: str) -> Path:
        return self._road.kept.path / f"{pod}-{volume}"

    def address(self, pod: str) -> str:
        """The pod's IP: 127.A.B.N, where A and B are of the namespace and N of the agent."""
        number = int(pod.removesuffix("-0").rpartition("-")[2])
        return f"127.{1 + self._network % 250}.{1 + self._network // 250 % 250}.{number}"

    def node(self, pod: str) -> str:
        """The address of the pod's node, which nobody reaches: each pod has another one."""
        return f"192.0.2.{self.address(pod).rpartition('.')[2]}"

    def _keep(self) -> None:
        try:
            while not self._over.wait(_POLL_S):
                self._step()
        except BaseException as error:  # told when the test closes
            self.problem = error

    def _step(self) -> None:
        objects = self._objects()
        pods = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Pod"}
        claims = {
            each["metadata"]["name"]: each["metadata"]["uid"]
            for each in objects
            if each["kind"] == "PersistentVolumeClaim"
            and not each["metadata"].get("deletionTimestamp")
        }
        self._end_others({name: each["metadata"]["uid"] for name, each in pods.items()})
        for name, pod in pods.items():
            if _image(pod).endswith(f":{MISSING_IMAGE}"):
                self._refuse(name, pod)
            elif name not in {*self.running, *self._ending} and (volume := claims.get(_claim(pod))):
                if volume in self._lost:
                    self._leave_pending(name, pod)
                else:
                    self._run(name, pod, volume)
        # At this address a process of the pod before may be ending: nobody is to find that one.
        present = {name: pod for name, pod in pods.items() if name not in self._ending}
        hosts = {self._name(pod): self.address(name) for name, pod in present.items()}
        hosts |= {_announced(pod): self.address(name) for name, pod in present.items()}
        self._names.set({name: address for name, address in hosts.items() if name})
        for name, (uid, _) in self.running.items():
            self._tell(name, uid)

    def _end_others(self, uids: Mapping[str, str]) -> None:
        """End processes of pods that are gone, as a kubelet does: SIGTERM, and a while to obey."""
        for name, (uid, process) in list(self.running.items()):
            if uids.get(name) != uid:
                del self.running[name]
                self._ending[name] = process
                with contextlib.suppress(ProcessLookupError, RuntimeError):  # it has ended
                    os.kill(process.pid, signal.SIGTERM)
        for name, process in list(self._ending.items()):
            if not process.is_alive():
                del self._ending[name]

    def _objects(self) -> list[Json]:
        chosen = "app.kubernetes.io/component=agent"
        return self._road.items("pods,persistentvolumeclaims", chosen)

    def _name(self, pod: Json) -> str:
        cluster = pod["metadata"]["labels"]["quorate.io/cluster"]
        service = service_name(cluster)
        return f"{pod['metadata']['name']}.{service}.{self._road.namespace}.svc"

    def _run(self, name: str, pod: Json, volume: str) -> None:
        (container,) = pod["spec"]["containers"]
        folder = self._folder(name, volume)
        folder.mkdir(exist_ok=True)
        (secret,) = (each for each in pod["spec"]["volumes"] if "secret" in each)
        replaced = {
            "$(POD_IP)": self.address(name),
            "$(FAILURE_DOMAIN)": "",
            f"={DATA}/": f"={folder}/",
            f"={SECRET}": f"={self._mount(folder / 'secret', secret['secret']['secretName'])}",
        }
        words = [str(word) for word in container["args"]]
        for old, new in replaced.items():
            words = [word.replace(old, new) for word in words]
        command = [*self._names.prefix, *python("quorate_agent", *words)]
        process = Component(name, self._road.kept.path, command, environment())
        process.start()
        self.running[name] = pod["metadata"]["uid"], process

    def _mount(self, folder: Path, secret: str) -> Path:
        found = self._road.get("secret", secret)
        assert found is not None, f"a pod mounts the Secret {secret}, which is not there"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, value in found["data"].items():
            (folder / name).write_bytes(base64.b64decode(value))
            (folder / name).chmod(0o400)
        return folder

    def _tell(self, name: str, uid: str) -> None:
        """Write the pod's status where its readiness is another than was told."""
        is_ready = False
        with contextlib.suppress(OSError):
            is_ready = asked(self.address(name), ADMIN_PORT, "/readyz")[0] == 200
        status = pod_status(is_ready=is_ready) | {"hostIP": self.node(name)}
        if self._told.get(name) != (uid, is_ready) and self._write(name, status):
            self._told[name] = uid, is_ready

    def _refuse(self, name: str, pod: Json) -> None:
        told = pod["metadata"]["uid"], False
        message = f'Back-off pulling image "{_image(pod)}"'
        status = waiting("ImagePullBackOff", message, ready=False, image="", imageID="")
        if self._told.get(name) != told and self._write(name, status):
            self._told[name] = told

    def _leave_pending(self, name: str, pod: Json) -> None:
        """Tell what a scheduler does that finds no node for a pod."""
        told = pod["metadata"]["uid"], False
        scheduled = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 node(s) had volume node affinity conflict",
        }
        status = {"phase": "Pending", "conditions": [scheduled]}
        if self._told.get(name) != told and self._write(name, status):
            self._told[name] = told

    def _write(self, name: str, status: Json) -> bool:
        """Write the pod's status; False when the pod is gone."""
        patch = json.dumps({"status": status})
        told = self._road.kubectl(
            "patch", "pod", name, "--subresource=status", "--type=merge", f"--patch={patch}",
            "--output=name", check=False,  # the pod may be gone by now
        )  # fmt: skip
        return bool(told)


def _local_volume(name: str, namespace: str, claim: Json) -> Json:
    """A volume on a node that is not there, for this claim."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gone"]}
    kept = {each: claim["metadata"][each] for each in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": claim["spec"]["resources"]["requests"],
            "claimRef": {"namespace": namespace, **kept},
            "local": {"path": "/volume"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


def _claim(pod: Json) -> str:
    (claim,) = (
        each["persistentVolumeClaim"]["claimName"]
        for each in pod["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    )
    return str(claim)


def _announced(pod: Json) -> str:
    """The name that the agent is told to announce; empty where it announces its address."""
    (container,) = pod["spec"]["containers"]
    flag = "--announce-client-host="
    found = [word.removeprefix(flag) for word in container["args"] if word.startswith(flag)]
    return str(found[0]) if found else ""


def _image(pod: Json) -> str:
    (container,) = pod["spec"]["containers"]
    return str(container["image"])


def pod_status(*, is_ready: bool) -> Json:
    """The status of a pod whose container runs."""
    container = {
        "name": "agent",
        "image": "i",
        "imageID": "",
        "ready": is_ready,
        "restartCount": 0,
        "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    }
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        "containerStatuses": [container],
    }
