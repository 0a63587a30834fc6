"""StatefulSets and pods of an API server in memory, as their controllers and kubelets keep them."""

import json
import zlib
from typing import Any

from quorate_lone_master.world import LoneMaster
from quorate_loopback.memory_api import MemoryApi
from quorate_owned.facts import pod, waiting

Json = dict[str, Any]
BAD_IMAGE = "localhost/nothing:1"
SETS = "/apis/apps/v1/namespaces/shop/statefulsets"
PODS = "/api/v1/namespaces/shop/pods"


class Kubelet:
    """Each step makes pods, and agents of `world` come and go with theirs.

    `restarted`: agents whose process began anew, in that order; `away`: those that run now."""

    def __init__(self, api: MemoryApi, world: LoneMaster) -> None:
        self.api = api
        self.world = world
        self.restarted: list[str] = []
        self.running: dict[str, str] = {}

    def step(self) -> None:
        wanted = {
            path: made for path, made in self.api.objects.items() if path.startswith(f"{SETS}/")
        }
        for path, made in wanted.items():
            self._keep(path, made)
        for agent, at in list(self.running.items()):
            if at not in self.api.objects:
                del self.running[agent]
                self.world.kill(agent)
        for at, made in list(self.api.objects.items()):
            if at.startswith(f"{PODS}/") and made["metadata"]["of"] not in wanted:
                del self.api.objects[at]
        self.world.pass_time(100)

    def _keep(self, path: str, made: Json) -> None:
        agent = made["metadata"]["labels"]["quorate.io/agent"]
        template = made["spec"]["template"]
        revision = f"r{zlib.crc32(json.dumps(template, sort_keys=True).encode()):x}"
        generation = made["metadata"]["generation"]
        status = {"updateRevision": revision, "observedGeneration": generation}
        if made.get("status") != status:
            self.api.put(path, {**made, "status": status})
        name = f"{made['metadata']['name']}-0"
        at = f"{PODS}/{name}"
        if not made["spec"]["replicas"]:
            self.api.objects.pop(at, None)
            return
        if at in self.api.objects:
            return
        if agent in self.running:
            return  # the process of the pod that was deleted ends first
        is_bad = template["spec"]["containers"][0]["image"] == BAD_IMAGE
        body = pod(name, revision, **(waiting("ImagePullBackOff", "not found") if is_bad else {}))
        body["metadata"]["labels"] |= template["metadata"]["labels"]
        body["metadata"]["of"] = path
        body["spec"] = {"nodeName": f"node-of-{name}"}
        self.api.put(at, body)
        if not is_bad:
            self.running[agent] = at
            self.restarted.append(agent)
            self.world.connect(agent)
