"""The images of operator and agents: what is in them, and that they serve as they are.

Containers run here as a restricted pod's would: any user, files that nobody can write, no
capabilities, no new privileges.
"""

import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.cluster import ClusterNode, RedisCluster

from quorate.wire.jobs.validation_result import ValidationVerdict, decode_result
from quorate_cluster.operator_api import OperatorApi
from quorate_cluster.waiting import wait_until
from quorate_control_plane.kept_folder import KeptFolder
from quorate_control_plane.ports import free_ports
from quorate_images.build import TARGETS
from quorate_images.container import Container
from quorate_images.storage import Image
from quorate_link.secret import make_secret
from quorate_operator.jobs.job import WORK
from quorate_operator.owned.pod_parts import SECRET
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

pytestmark = [pytest.mark.process, pytest.mark.needs("images"), pytest.mark.timeout(600)]

HOST = "127.0.0.1"
ROOT = Path(__file__).parents[3]
BYTES_MAX = {"agent": 200_000_000, "spark": 1_000_000_000}
BUILD_TOOLS = ("pip", "pip3", "gcc", "cc", "make", "go", "git", "hatchling", "wheel", "uv")
ZONE = {"clusterRef": {"name": "main"}, "partitions": 8, "replicas": 3}


class Containers:
    """One operator and three agents, each in a container of its image, as any one user."""

    def __init__(self, images: dict[str, Image], kept: KeptFolder) -> None:
        self._folder = kept.path
        self._ports = free_ports()
        self.user = 100_000 + secrets.randbelow(2_000_000_000)
        self._secrets = self._owned("secrets")
        make_secret(self._secrets / "main.json")
        os.chown(self._secrets / "main.json", self.user, self.user)
        api_port = next(self._ports)
        self.operator = Container(
            "operator",
            self._folder,
            images["operator"],
            ["embedded", "--data=/data", "--secrets=/secrets", f"--api={HOST}:{api_port}"],
            user=self.user,
            volumes={"/data": self._owned("operator"), "/secrets": self._secrets},
        )
        self.api = OperatorApi(HOST, api_port, self._folder / "operator" / "api-token")
        self.addresses: list[str] = []
        self.agents = [self._agent(f"agent-{i}", images["agent"]) for i in (1, 2, 3)]

    @property
    def all(self) -> list[Container]:
        return [self.operator, *self.agents]

    def _agent(self, name: str, image: Image) -> Container:
        peer = f"{HOST}:{next(self._ports)}"
        self.addresses.append(peer)
        arguments = [f"--name={name}", "--data=/data", "--cluster=main", f"--peer={peer}"]
        arguments += ["--secret-file=/secrets/main.json"]
        arguments += [f"--client-port-base={next(self._ports)}"]
        volumes = {"/data": self._owned(name), "/secrets": self._secrets}
        return Container(name, self._folder, image, arguments, user=self.user, volumes=volumes)

    def _owned(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(mode=0o700)
        os.chown(folder, self.user, self.user)
        return folder

    def declare(self, kind: str, plural: str, name: str, spec: dict[str, object]) -> None:
        body = {"apiVersion": "quorate.io/v1alpha1", "kind": kind, "spec": spec}
        self.api.put(plural, name, {**body, "metadata": {"name": name}})

    def logs(self) -> str:
        return "\n".join(f"--- {each.name} ---\n{each.log_tail(30)}" for each in self.all)


@pytest.fixture
def containers(images: dict[str, Image]) -> Iterator[Containers]:
    kept = KeptFolder("quorate-containers-")
    try:
        yield Containers(images, kept)
    finally:
        kept.close()


def test_the_images_serve_a_key_as_any_user_without_rights(containers: Containers) -> None:
    for container in containers.all:
        container.start()

    def answers() -> bool:
        ended = [each.name for each in containers.all if not each.is_alive()]
        assert not ended, f"{ended} ended:\n{containers.logs()}"
        try:
            return bool(containers.api.status())
        except OSError:
            return False

    wait_until(answers, "operator's API", 60, containers.logs)
    cluster = {"agents": "external", "addresses": containers.addresses}
    containers.declare("StorageCluster", "storageclusters", "main", cluster)
    # All agents.  The operator imports the library that reads this only now.
    everywhere = {"dataNodesFilter": "$[?(@.spare != 'yes')]"}
    containers.declare("Zone", "zones", "library", {**ZONE, **everywhere})

    def is_replicated() -> list[str]:
        status = containers.api.get("zones", "library").get("status", {})
        said = {each["type"]: each["status"] for each in status.get("conditions", [])}
        is_ready = said.get("Available") == said.get("FullyReplicated") == "True"
        return list(status["endpoints"]) if is_ready and len(status["ports"]) == 3 else []

    endpoints = wait_until(is_replicated, "zone with all copies", 60, containers.logs)
    nodes = [ClusterNode(HOST, int(each.rpartition(":")[2])) for each in endpoints]
    with RedisCluster(startup_nodes=nodes, socket_timeout=20) as client:
        client.set("greeting", "hello")

        assert client.get("greeting") == b"hello"
    for container in containers.all:
        _assert_restricted(container.process(), containers.user)
    for container in containers.all:  # the operator first: no agent is followed any more
        assert container.stop() == 0, container.log_tail()


def _assert_restricted(process: Path, user: int) -> None:
    lines = (process / "status").read_text().splitlines()
    status = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    assert status["Uid"] == status["Gid"] == [str(user)] * 4
    assert [int(status[name][0], 16) for name in ("CapEff", "CapPrm", "CapBnd")] == [0, 0, 0]
    assert status["NoNewPrivs"] == ["1"]
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    options = [mount[5].split(",") for mount in mounts if mount[4] == "/"]
    assert ["ro" in each for each in options] == [True]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_holds_what_it_runs_and_no_tools(images: dict[str, Image], target: str) -> None:
    root = images[target].root
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    names = {path.name for path in files}

    assert f"quorate-{target}" in names
    assert names.isdisjoint(BUILD_TOOLS)
    assert not any(name.startswith("pip-") or name.endswith(".whl") for name in names)
    assert not (root / "root/.cache").exists()
    privileged = [path for path in files if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    assert privileged == []
    closed = [path for path in (root / "opt").rglob("*") if not path.lstat().st_mode & stat.S_IROTH]
    assert closed == []


def test_an_image_says_what_it_is(images: dict[str, Image]) -> None:
    for target, image in images.items():
        labels = {
            name.removeprefix("org.opencontainers.image."): text
            for name, text in image.labels.items()
        }
        assert labels["title"] == f"quorate-{target}"
        assert labels["version"]
        assert labels["description"]
        assert image.entrypoint == (f"quorate-{target}",)
        user = image.user.split(":")[0]
        assert int(user) > 0  # a number: only so can a kubelet see that it is not root


@pytest.mark.parametrize("target", BYTES_MAX)
def test_an_image_is_small(images: dict[str, Image], target: str) -> None:
    sizes = {
        (status.st_dev, status.st_ino): status.st_blocks * 512
        for status in (path.lstat() for path in images[target].root.rglob("*"))
    }

    assert sum(sizes.values()) < BYTES_MAX[target]


def test_the_image_of_validations_compares_rows_by_spark(images: dict[str, Image]) -> None:
    """With the jars that are left, as a user without a name."""
    user = 100_000 + secrets.randbelow(2_000_000_000)
    scripted = ScriptedZone()
    for number in range(100):
        scripted.write(b"key-%d" % number, b"value")
    damaged = scripted.copy(2)
    damaged.rows[b"key-7"] = (*damaged.rows[b"key-7"][:3], b"other")
    kept = KeptFolder("quorate-containers-")
    try:
        with listening(scripted) as zone:
            folders = {SECRET: kept.path / "secret", WORK: kept.path / "work"}
            for folder in folders.values():
                folder.mkdir(mode=0o700)
            secret = folders[SECRET] / "c.json"
            shutil.copy(zone.secret_file, secret)
            for path in (*folders.values(), secret):
                os.chown(path, user, user)
            arguments = ["validate", "z", "--cluster=c", f"--secret-file={SECRET}/c.json"]
            arguments += [f"--agents={','.join(zone.copies.agents)}", "--level=rows"]
            arguments += [f"--work-dir={WORK}", f"--termination-message={WORK}/message", "--json"]
            validation = Container(
                "validation",
                kept.path,
                images["spark"],
                arguments,
                user=user,
                volumes=folders,
            )
            validation.start()
            wait_until(lambda: not validation.is_alive(), "its end", 300, validation.log_tail)
        result = decode_result((folders[WORK] / "message").read_text())
        assert validation.exit_status == 1, validation.log_tail()
    finally:
        kept.close()
    assert (result.verdict, result.classes) == (ValidationVerdict.DIFFER, {"value": 1})
    assert (result.copies, result.differing_keys) == (3, 1)


def test_the_environment_of_this_machine_stays_outside(images: dict[str, Image]) -> None:
    """Neither its package archive nor its resolver, nor settings of pip."""
    for image in images.values():
        for name in ("etc/pip.conf", "etc/apt/sources.list", "etc/resolv.conf", "etc/hostname"):
            path = image.root / name
            assert not path.exists() or path.read_bytes() == b"", path


def test_the_operators_image_has_the_program_of_helm_test(
    images: dict[str, Image],
) -> None:
    """It starts as the chart's test pod starts it, and misses the account that a pod has."""
    template = ROOT / "charts" / "quorate" / "templates" / "tests" / "zones.yaml"
    (words,) = re.findall(r"command: \[(.*)\]", template.read_text())
    kept = KeptFolder("quorate-containers-")
    try:
        check = Container(
            "zones", kept.path, images["operator"], [], user=100_000, volumes={},
            entrypoint=words.split(", "),
        )  # fmt: skip
        check.start()
        wait_until(lambda: not check.is_alive(), "its end", 60, check.log_tail)
        said = check.log_tail()
    finally:
        kept.close()
    assert check.exit_status == 1
    assert "/var/run/secrets/kubernetes.io/serviceaccount/namespace" in said
