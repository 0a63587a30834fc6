"""Jobs of Quorate's kinds on the nodes of a test: their image, the release, how runs ended."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from quorate.wire.schema.resource import API_VERSION
from quorate_images.storage import Image
from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import CLUSTER, OPERATORS, REGISTRY, VERSION, Installed

IMAGE = f"{REGISTRY}/quorate-spark"
PODS = "--selector=batch.kubernetes.io/job-name"
RESOURCES = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
"""The memory is that of examples/data-validation.yaml."""
_UPGRADE = "helm upgrade quorate charts/quorate --namespace storage"
_ROLLED_OUT = "kubectl --namespace storage rollout status deployment/quorate-operator"
_RUN_S_MAX = 400


class Jobs:
    """Quorate as installed, with the image of Jobs on one of the nodes."""

    def __init__(self, installed: Installed, image: Image) -> None:
        self.installed = installed
        self.node = installed.nodes.nodes[0]
        installed.nodes.load_large_image(image.name, f"{IMAGE}:{VERSION}", self.node)

    @contextmanager
    def upgraded(self, *values: str) -> Iterator[None]:
        """The release with the image and with these values; in the end as the manual has it."""
        chosen = (f"validation.image.repository={IMAGE}", *values)
        self._upgrade("--reuse-values", *chosen)
        try:
            yield
        finally:
            self._upgrade("--reset-values", f"image.repository={REGISTRY}/quorate-operator")

    def declare(self, kind: str, name: str, **spec: Any) -> None:
        """`kubectl apply` an object of this kind."""
        metadata = {"name": name}
        whole = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
        self.installed.kubectl("apply", "--filename=-", stdin=json.dumps(whole))

    @contextmanager
    def deleted_in_the_end(self, kinds: str) -> Iterator[None]:
        """In the end the namespace has no objects of these kinds, and none of their pods."""
        try:
            yield
        finally:
            self.installed.kubectl("delete", kinds, "--all")
            self.installed.wait(lambda: not self.installed.get("jobs")["items"], "no Jobs")
            self.installed.wait(lambda: not self.installed.pods(PODS), "no pods of Jobs")

    @property
    def place(self) -> Mapping[str, Any]:
        """Fields of a run: on the node that has the image, with the memory of the examples."""
        return {
            "nodeSelector": {"kubernetes.io/hostname": self.node.name},
            "resources": RESOURCES,
            "deadlineSeconds": _RUN_S_MAX,
        }

    def wait_end(self, kind: str, name: str) -> Json:
        """The status of a run that has ended."""

        def status() -> Json:
            return dict(self.installed.get(kind, name).get("status", {}))

        self.installed.wait(
            lambda: status().get("phase") in ("Finished", "Refused"),
            f"an end of {kind} {name}",
            _RUN_S_MAX + 60,
        )
        return status()

    def next_run(self, kind: str, schedule: str, former_job: str) -> Json:
        """The status of the next run of a schedule, once it has ended.

        `kind`: that of its runs.  `former_job`: the Job of the run before; empty: any is the next.
        """

        def run() -> str:
            told = self.installed.get(f"scheduled{kind}", schedule).get("status", {})
            last = str(told.get("lastRun", ""))
            return last if last and not former_job.startswith(f"{last}-") else ""

        self.installed.wait(run, "a run of the schedule", 100)
        return self.wait_end(kind, run())

    def report(self, status: Json) -> Json:
        """The report of a run: what its status says of where it is."""
        job = status["job"]
        return dict(json.loads(self.installed.kubectl("logs", f"job/{job}")))

    def _upgrade(self, base: str, *values: str) -> None:
        former = _uids(self.installed)
        chosen = " ".join(f"--set '{each}'" for each in values)
        self.installed.type(f"{_UPGRADE} {base} {chosen}\n{_ROLLED_OUT}")
        self.installed.wait(
            lambda: _uids(self.installed).isdisjoint(former) and self._is_led(), "new operators"
        )

    def _is_led(self) -> bool:
        status = self.installed.get("storagecluster", CLUSTER)["status"]
        names = [pod["metadata"]["name"] for pod in self.installed.pods(OPERATORS)]
        leads = status.get("master", {}).get("identity", "").partition("/")[0]
        return leads in names and self.installed.is_whole()


def _uids(installed: Installed) -> set[str]:
    return {pod["metadata"]["uid"] for pod in installed.pods(OPERATORS)}
