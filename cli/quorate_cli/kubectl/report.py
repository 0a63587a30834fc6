"""The support bundle: objects, Events, logs and versions as one archive, without Secrets.

No Secret is read.  Values of environment variables, managed fields and the manifest that kubectl
keeps in an annotation are left out.  Whatever cannot be read is listed in `missing.txt`; the rest
is still written.
"""

import io
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from quorate.wire.crds import KINDS
from quorate_cli.kubectl.kube_api import (
    KubeApi,
    core_path,
    group_path,
    objects_path,
)
from quorate_cli.kubectl.objects import LABEL_CLUSTER
from quorate_cli.kubectl.operator_lease import GROUP as LEASES
from quorate_cli.kubectl.operator_lease import LEASE
from quorate_cli.kubectl.told_events import told
from quorate_cli.terminal.problem import Problem, words
from quorate_cli.terminal.version_option import own_version

LOG_LINES = 20_000
LOG_BYTES = 16 << 20
LEFT_OUT = "(left out)"
OPERATOR = "app.kubernetes.io/name=quorate,app.kubernetes.io/component=operator"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Json = dict[str, Any]


class Collection(NamedTuple):
    """Objects to read: `path` of the collection, and labels or fields that select some of them."""

    folder: str
    path: str
    query: dict[str, str]


class Report:
    """Gathers the files of one namespace and of its operator."""

    def __init__(self, api: KubeApi, namespace: str, operator_namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._operator_namespace = operator_namespace or namespace
        self.files: dict[str, bytes] = {}
        self.missing: list[str] = []

    def gather(self, status: Callable[[], str]) -> None:
        """Read everything that can be read.  `status`: returns what `status` shows."""
        self._add("status.txt", lambda: status().encode())
        self._add("versions.yaml", self._versions)
        pods: list[Json] = []
        for collection in self._collections():
            pods += [each for each in self._objects(collection) if collection.folder == "pods"]
        self._add("events.txt", self._events)
        for pod in pods:
            self._logs(pod)

    def write(self, file: Path) -> None:
        """Write the archive, completely or not at all."""
        self.files["missing.txt"] = "".join(f"{each}\n" for each in self.missing).encode()
        part = file.with_name(f".{file.name}.part")
        folder = file.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
        try:
            with tarfile.open(part, "w:gz") as archive:
                for name, content in sorted(self.files.items()):
                    entry = tarfile.TarInfo(f"{folder}/{name}")
                    entry.size, entry.mtime, entry.mode = len(content), int(time.time()), 0o600
                    archive.addfile(entry, io.BytesIO(content))
            part.replace(file)
        except OSError as error:
            raise Problem(f"--output {file} cannot be written: {words(error)}") from error
        finally:
            part.unlink(missing_ok=True)

    def _collections(self) -> Iterator[Collection]:
        here, there = self._namespace, self._operator_namespace
        for kind in KINDS:
            yield Collection(kind.plural, objects_path(kind.plural, here), {})
        of_agents = {"labelSelector": LABEL_CLUSTER}
        for plural in ("pods", "persistentvolumeclaims", "services", "serviceaccounts"):
            yield Collection(plural, core_path(plural, here), of_agents)
        sets, budgets = "statefulsets", "poddisruptionbudgets"
        yield Collection(sets, group_path("apps/v1", sets, here), of_agents)
        yield Collection(budgets, group_path("policy/v1", budgets, here), of_agents)
        of_operator = {"labelSelector": OPERATOR}
        yield Collection("pods", core_path("pods", there), of_operator)
        yield Collection("deployments", group_path("apps/v1", "deployments", there), of_operator)
        lease = {"fieldSelector": f"metadata.name={LEASE}"}
        yield Collection("leases", group_path(LEASES, "leases", there), lease)

    def _add(self, name: str, read: Callable[[], bytes]) -> None:
        try:
            self.files[name] = read()
        except Problem as problem:
            self.missing.append(f"{name}: {problem}")

    def _objects(self, collection: Collection) -> list[Json]:
        try:
            found: list[Json] = self._api.collection(collection.path, **collection.query)
        except Problem as problem:
            self.missing.append(f"{collection.folder}: {problem}")
            return []
        for each in found:
            text = yaml.safe_dump(without_secrets(each), sort_keys=False, allow_unicode=True)
            name = f"{collection.folder}/{each['metadata']['name']}.yaml"
            self.files[f"objects/{name}"] = text.encode()
        return found

    def _events(self) -> bytes:
        lines = []
        for whole in self._api.collection(core_path("events", self._namespace)):
            about = cast(Json, whole["involvedObject"])
            each = told(whole)
            lines.append(
                f"{each.event.time}  {each.event.kind}  {each.event.reason}"
                f"  {about.get('kind')}/{about.get('name')}  {each.event.message}  (x{each.count})"
            )
        return "".join(f"{line}\n" for line in sorted(lines)).encode()

    def _logs(self, pod: Json) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        restarted = {
            each["name"]
            for each in pod.get("status", {}).get("containerStatuses") or []
            if each.get("restartCount")
        }
        for container in pod["spec"]["containers"]:
            of = container["name"]
            for is_previous in (False, *((True,) if of in restarted else ())):
                path = f"{core_path('pods', namespace, name)}/log"
                suffix = ".previous" if is_previous else ""
                asked: dict[str, str | int | bool] = {
                    "container": of, "tailLines": LOG_LINES, "limitBytes": LOG_BYTES,
                    "timestamps": True, "previous": is_previous,
                }  # fmt: skip
                self._add(f"logs/{name}/{of}{suffix}.log", partial(self._api.text, path, **asked))

    def _versions(self) -> bytes:
        made = {"kubectl-quorate": own_version(), "kubernetes": self._api.get("/version")}
        return yaml.safe_dump(made, sort_keys=False).encode()


def without_secrets(whole: Any) -> Any:
    """Return an object without values of environment variables and copies of its manifest."""
    if isinstance(whole, list):
        return [without_secrets(each) for each in whole]
    if not isinstance(whole, dict):
        return whole
    made = {}
    for key, value in whole.items():
        if key in ("managedFields", LAST_APPLIED):
            continue
        if key == "env" and isinstance(value, list):
            made[key] = [_without_value(each) for each in value]
        else:
            made[key] = without_secrets(value)
    return made


def _without_value(variable: Any) -> Any:
    if isinstance(variable, dict) and "value" in variable:
        return {**variable, "value": LEFT_OUT}
    return variable
