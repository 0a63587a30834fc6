"""Pods of managed agents are evicted, or replaced by an image that does not start, under clients.

The API server and its controllers are real; there is no kubelet: the agent of a pod is a process
with the arguments of the pod.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from redis.cluster import RedisCluster

from quorate_cluster.names import Names
from quorate_cluster.outage import Pulses
from quorate_cluster.road import QUIET, Road, sound_operator
from quorate_cluster.served import NotServed
from quorate_cluster.waiting import wait_until
from quorate_control_plane.control_plane import ControlPlane
from quorate_loopback.waiting import closed
from quorate_nodes.watching.primary_watch import PrimaryWatch
from quorate_operator.kube.access import find_access
from quorate_operator.kube.api import ApiRefused, KubeApi
from quorate_operator.names import FIELD_MANAGER
from quorate_owned.pod_processes import MISSING_IMAGE, PodProcesses

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("own-names"),
    pytest.mark.timeout(300),
]

Json = dict[str, Any]
ZONE = "sessions"
PARTITIONS = 16
PODS = [f"main-agent-{number}-0" for number in (1, 2, 3)]
IMAGE = "localhost/quorate-agent:1"
TOO_MANY_REQUESTS = 429


class Managed:
    """A cluster of three managed agents with a zone that has a copy on each."""

    def __init__(self, plane: ControlPlane, namespace: str, names: Names) -> None:
        self.road = Road(plane, namespace)
        self.pods = PodProcesses(self.road, names)
        self.plane = plane
        self._names = names

    def start(self) -> None:
        road = self.road
        road.use_example_role()
        self.pods.start()
        program = partial(_with_names, self._names)
        road.start_operator(program=program)
        self.declare(IMAGE)
        whole = {"clusterRef": {"name": "main"}, "partitions": PARTITIONS, "replicas": 3}
        road.apply("Zone", ZONE, **whole)

    def close(self) -> None:
        self.pods.close()
        self.road.close()
        self.pods.forget()

    def declare(self, image: str) -> None:
        managed = {"replicas": 3, "image": image, "storage": {"size": "1Gi"}}
        self.road.apply("StorageCluster", "main", managed=managed)

    def ask_copies(self, count: int) -> None:
        patch = json.dumps({"spec": {"replicas": count}})
        self.road.kubectl("patch", "zone", ZONE, "--type=merge", f"--patch={patch}")

    def zone(self, name: str) -> Json:
        return self.road.get("zone", name) or {}

    def client(self, zone: str, **options: Any) -> RedisCluster:
        found = [each.rpartition(":") for each in self.zone(zone)["status"]["endpoints"]]
        host, _, port = found[0]
        return RedisCluster(host=host, port=int(port), **{"socket_timeout": 8, **options})

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of the cluster's condition."""
        told = self.road.status("storagecluster", "main").get("conditions", [])
        for each in told:
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def uids(self) -> dict[str, str]:
        """The uid of each pod that is ready and not being deleted."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.road.items("pods")
            if not pod["metadata"].get("deletionTimestamp")
            and {"type": "Ready", "status": "True"}.items()
            <= {**pod["status"].get("conditions", [{}])[0]}.items()
        }

    def owners(self) -> list[set[str]]:
        """Per partition the agents that own it, by the stored rows."""
        tables = self.road.items("partitiontables")
        rows = [row for table in tables for row in table["spec"].get("rows", [])]
        assert len(rows) == PARTITIONS
        return [{*row["replicas"]} for row in rows]

    def is_whole(self) -> bool:
        """Whether all are ready, of the declared template, and hold everything."""
        cluster = self.road.conditions("storagecluster", "main")
        found = self.road.get("storagecluster", "main") or {}
        wanted = dict.fromkeys(("Ready", "AgentsUpdated", "EvictionsAllowed"), "True")
        return (
            sorted(self.uids()) == PODS
            and found["status"].get("observedGeneration") == found["metadata"]["generation"]
            and wanted.items() <= cluster.items()
            and QUIET.items() <= self.road.conditions().items()
            and self.evictions_allowed() == 1
        )

    def evictions_allowed(self) -> int:
        """How many the API server allows at once; -1: it has not looked at the present budget."""
        budget = self.road.get("poddisruptionbudget", "main-agents") or {}
        status = budget.get("status", {})
        if status.get("observedGeneration") != budget["metadata"]["generation"]:
            return -1
        return int(status["disruptionsAllowed"])

    def evict(self, pod: str) -> int:
        """Ask the API server to evict the pod; the status code of its answer."""
        return asyncio.run(self._evict(pod))

    async def _evict(self, pod: str) -> int:
        here = self.road.namespace
        api = KubeApi(find_access(self.plane.kubeconfig), None)
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": here},
        }
        try:
            await api.create(f"/api/v1/namespaces/{here}/pods/{pod}/eviction", body)
        except ApiRefused as refused:
            if "disruption budget" not in str(refused):
                raise
            return refused.status
        finally:
            await closed(api)
        return 201

    def wait(self, is_so: Callable[[], object], what: str, timeout_s: float = 60) -> None:
        def facts() -> object:
            return (
                self.road.status("storagecluster", "main"),
                self.road.conditions(),
                self.road.kubectl("get", "pods,poddisruptionbudgets"),
                self.road.logs(),
            )

        wait_until(lambda: bool(is_so()), what, timeout_s, facts)


def _with_names(names: Names, *words: str) -> list[str]:
    return [*names.prefix, *sound_operator(*words)]


@pytest.fixture(scope="module")
def cluster(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Managed]:
    namespace = "test-evictions"
    control_plane.kubectl("create", "namespace", namespace)
    with pytest.MonkeyPatch.context() as patch:
        names = Names(tmp_path_factory.mktemp("evictions") / "hosts", patch)
        made = Managed(control_plane, namespace, names)
        try:
            made.start()
            yield made
        finally:
            made.close()
            control_plane.drop_namespace(namespace)


@pytest.fixture
def managed(cluster: Managed) -> Managed:
    """The cluster of all tests here, whole."""
    cluster.wait(cluster.is_whole, "a whole cluster", 90)
    return cluster


def test_pods_are_evicted_one_by_one_and_each_when_the_one_before_holds_everything(
    managed: Managed,
) -> None:
    first, second, third = PODS
    before = managed.uids()
    with (
        Pulses(managed, ZONE, keys_max=8) as pulses,
        PrimaryWatch(managed.plane.kubectl_command, managed.road.namespace) as primaries,
    ):
        managed.wait(lambda: managed.evict(first) == 201, "the first eviction")

        assert managed.evict(second) == TOO_MANY_REQUESTS

        def says_why() -> bool:
            status, _, message = managed.condition("EvictionsAllowed")
            return status == "False" and "agent-1" in message

        managed.wait(says_why, "a condition that says why")

        refused = 0

        def goes() -> bool:
            nonlocal refused
            status = managed.evict(second)
            refused += status == TOO_MANY_REQUESTS
            return status == 201

        # Where Kubernetes' disruption controller sees the evicted pod and its successor of the same
        # name as one, it allows no other eviction for two minutes.
        managed.wait(goes, "the second eviction", 180)
        assert all("agent-1" in owners for owners in managed.owners()), "it holds everything again"
        assert managed.uids().get(first, before[first]) != before[first]
        assert managed.evict(third) == TOO_MANY_REQUESTS
        managed.wait(managed.is_whole, "a whole cluster again")
    assert {managed.uids()[pod] for pod in (first, second)}.isdisjoint(before.values())
    assert managed.uids()[third] == before[third]
    assert pulses.lost() == []
    assert {"agent-1", "agent-2"} <= {*primaries.handed_over}, "each before its process ended"
    if pulses.failed or primaries.taken_over:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}, {primaries.taken_over}")


def test_a_pod_that_is_not_ready_is_evicted_whatever_the_budget_says(managed: Managed) -> None:
    broken, other, _ = PODS
    before = managed.uids()
    managed.pods.running[broken][1].kill()
    managed.wait(lambda: broken not in managed.uids(), "a pod that is not ready")
    # The agent's end may be told of before the pod is seen as not ready.
    managed.wait(
        lambda: f"pod {broken}: NotReady" in managed.condition("EvictionsAllowed")[2],
        "the pod in the condition",
    )
    status, reason, _ = managed.condition("EvictionsAllowed")
    assert status == "False"
    assert reason in ("AgentsAway", "PodsNotReady")
    budget = managed.road.get("poddisruptionbudget", "main-agents") or {}
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"

    assert managed.evict(other) == TOO_MANY_REQUESTS
    told = managed.road.kubectl("get", "pod", broken, "--output=jsonpath={.status.phase}")
    assert told == "Running", "any other phase is evicted without a look at the budget"
    assert managed.evict(broken) == 201

    managed.wait(managed.is_whole, "a whole cluster again")
    assert managed.uids()[broken] != before[broken]
    assert managed.uids()[other] == before[other]


def test_an_image_that_does_not_start_stops_after_the_first_pod_and_goes_back(
    managed: Managed,
) -> None:
    before = managed.uids()
    with Pulses(managed, ZONE, keys_max=8) as pulses:
        managed.declare(f"localhost/quorate-agent:{MISSING_IMAGE}")
        try:
            managed.wait(
                lambda: managed.condition("Ready")[2].startswith("2 of 3 agents are online; pod"),
                "a condition that names a pod",
            )
            [bad] = before.keys() - managed.uids().keys()
            # Each may first tell of the moment between the pod's end and its failed start.
            back_off = f"; pod {bad}: ImagePullBackOff: Back-off"
            managed.wait(
                lambda: (
                    managed.condition("Ready")[:2] == ("False", "PodsFailing")
                    and back_off in managed.condition("Ready")[2]
                ),
                "why the pod does not start",
            )
            managed.wait(
                lambda: (
                    managed.condition("AgentsUpdated")
                    == ("False", "Replacing", f"pod {bad} was replaced and is not ready")
                ),
                "what the change waits for",
            )
            managed.wait(
                lambda: back_off in managed.condition("EvictionsAllowed")[2],
                "why no pod may be evicted",
            )
        finally:
            managed.declare(IMAGE)
        managed.wait(managed.is_whole, "a whole cluster again", 90)
    after = managed.uids()
    assert [pod for pod in PODS if after[pod] != before[pod]] == [bad], "no other was ever replaced"
    for pod in managed.road.items("pods"):
        assert pod["spec"]["containers"][0]["image"] == IMAGE
    assert pulses.lost() == []
    if pulses.failed:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


def test_a_budget_of_the_build_before_becomes_one_of_this(managed: Managed) -> None:
    def budget() -> Json:
        return managed.road.get("poddisruptionbudget", "main-agents") or {}

    now = budget()
    assert now["spec"].pop("minAvailable") == 2
    kept = ("name", "namespace", "labels", "ownerReferences")
    former = {
        "apiVersion": now["apiVersion"],
        "kind": now["kind"],
        "metadata": {each: now["metadata"][each] for each in kept},
        "spec": {**now["spec"], "maxUnavailable": 1},
    }
    same = ("--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}")
    managed.road.kubectl("apply", *same, "--filename=-", stdin=json.dumps(former))

    managed.wait(lambda: budget()["spec"].get("minAvailable") == 2, "a budget of this build")
    assert "maxUnavailable" not in budget()["spec"]


def test_a_zone_of_two_copies_says_that_no_pod_can_ever_be_evicted(managed: Managed) -> None:
    def told() -> list[str]:
        events = managed.road.items("events")
        found = [each for each in events if each["reason"] == "EvictionsRefused"]
        return [each["message"] for each in sorted(found, key=lambda e: e["firstTimestamp"])]

    managed.ask_copies(2)
    try:
        managed.wait(
            lambda: managed.condition("EvictionsAllowed")[1] == "TooFewCopies",
            "a reason that lasts",
        )
        managed.wait(lambda: any("two copies" in each for each in told()), "an Event")
        assert "Zone sessions has one or two copies" in told()[-1]
        assert managed.evict(PODS[0]) == TOO_MANY_REQUESTS
    finally:
        managed.ask_copies(3)
