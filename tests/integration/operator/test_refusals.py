"""What a real API server refuses, and how the operator tells that from what it does not know."""

import asyncio
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from quorate.facts.errors import InvariantError
from quorate.facts.partition_row import PartitionRow
from quorate.facts.topology import Holder, NodeRecord, Voter
from quorate.facts.zone import ZoneRecord
from quorate.protocol.metastore import (
    Conflict,
    MetastoreUnavailable,
    NodeKey,
    OutcomeUnknown,
    ShardKey,
    WriteRefused,
    ZoneKey,
)
from quorate.wire.schema.resource import API_VERSION, GROUP
from quorate_control_plane.api_proxy import Answer, ApiProxy, api_proxy
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.kube.access import KubeAccess, read_kubeconfig
from quorate_operator.kube.api import ApiRefused, ApiThrottled, KubeApi, OtherObject, path_of
from quorate_operator.kube.token_bucket import TokenBucket
from quorate_operator.mastership.election import ElectionSettings
from quorate_operator.mastership.elector import Elector
from quorate_operator.metastores.kubernetes import KubernetesMetastore

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

Json = dict[str, Any]
UID = "0b54ad4c-7d1c-4f35-9a7e-5a4f5ce30f01"
NODE = NodeRecord("agent-1", "store", 1, "127.0.0.1", 7100, "127.0.0.1")
KEY = NodeKey("agent-1")
ZONE = ZoneRecord(UID, "sessions", 16, 3)


@asynccontextmanager
async def reached(access: KubeAccess, bucket: TokenBucket | None = None) -> AsyncIterator[KubeApi]:
    api = KubeApi(access, None, bucket=bucket)
    try:
        yield api
    finally:
        await api.close()


def store(api: KubeApi, namespace: str) -> KubernetesMetastore:
    return KubernetesMetastore(api, namespace, "main")


@pytest.fixture
async def metastore(
    control_plane: ControlPlane, namespace: str
) -> AsyncIterator[KubernetesMetastore]:
    """An administrator's."""
    async with reached(read_kubeconfig(control_plane.kubeconfig)) as api:
        yield store(api, namespace)


async def refusal(write: Callable[[], Awaitable[object]], timeout_s: float = 30) -> WriteRefused:
    """The refusal that `write` meets once the API server knows of it."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            await write()
        except WriteRefused as refused:
            return refused
        except Conflict:
            pass  # an earlier one was taken
        await asyncio.sleep(0.2)
    raise AssertionError("nothing was refused")


async def test_rights_that_were_never_given_are_a_refusal_with_the_apis_sentence(
    control_plane: ControlPlane, namespace: str
) -> None:
    access = read_kubeconfig(control_plane.kubeconfig_for("without-rights"))
    async with reached(access) as api:
        with pytest.raises(WriteRefused) as met:
            await store(api, namespace).write(KEY, NODE, None)
        with pytest.raises(MetastoreUnavailable, match="is forbidden"):
            await store(api, namespace).read(KEY)

    assert met.value.reason == "Forbidden"
    assert met.value.retry_after_s is None
    assert 'User "without-rights" cannot create resource "storagenodes"' in str(met.value)


async def test_an_exceeded_quota_is_a_refusal(
    control_plane: ControlPlane, namespace: str, metastore: KubernetesMetastore
) -> None:
    hard = {f"count/storagenodes.{GROUP}": "0"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    apply(control_plane, {**quota, "spec": {"hard": hard}}, f"--namespace={namespace}")
    numbers = iter(range(1000))

    def write() -> Awaitable[object]:
        name = f"agent-{next(numbers)}"
        return metastore.write(NodeKey(name), record_named(name), None)

    refused = await refusal(write)

    assert refused.reason == "QuotaExceeded"
    assert "exceeded quota: none" in str(refused)


def record_named(name: str) -> NodeRecord:
    return NodeRecord(name, f"store-of-{name}", 1, "127.0.0.1", 7100, "127.0.0.1")


async def test_a_policy_that_denies_is_a_refusal_and_no_state_that_must_not_exist(
    control_plane: ControlPlane, namespace: str, metastore: KubernetesMetastore
) -> None:
    revision = await metastore.write(KEY, NODE, None)
    with policy(control_plane, namespace, "storagenodes", "frozen for the audit"):
        refused = await refusal(lambda: metastore.write(KEY, NODE, revision))

    assert refused.reason == "Denied"
    assert "frozen for the audit" in str(refused)


async def test_a_row_that_goes_back_is_a_state_that_must_not_exist(
    metastore: KubernetesMetastore,
) -> None:
    await metastore.write(ZoneKey(UID), ZONE, None)
    voters = (Voter("a", "s-a"), Voter("b", "s-b"), Voter("c", "s-c"))
    row = PartitionRow(0, 7, 7, Holder("a", "s-a", 1), ("a", "b", "c"), voters)
    older = PartitionRow(0, 6, 6, Holder("a", "s-a", 1), ("a", "b", "c"), voters)
    revision = await metastore.write(ShardKey(UID, 0), (row,), None)

    with pytest.raises(InvariantError, match="never decrease"):
        await metastore.write(ShardKey(UID, 0), (older,), revision)


async def test_a_namespace_that_is_being_deleted_is_a_refusal_of_its_own(
    control_plane: ControlPlane, namespace: str, metastore: KubernetesMetastore
) -> None:
    held = {"apiVersion": "v1", "kind": "ConfigMap"}
    metadata = {"name": "held", "namespace": namespace, "finalizers": [f"{GROUP}/test"]}
    apply(control_plane, {**held, "metadata": metadata})
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")
    try:
        refused = await refusal(lambda: metastore.write(KEY, NODE, None))
    finally:
        patch = json.dumps({"metadata": {"finalizers": []}})
        here = f"--namespace={namespace}"
        control_plane.kubectl("patch", "configmap", "held", here, "--type=merge", "-p", patch)

    assert refused.reason == "NamespaceTerminating"


async def test_a_webhook_that_cannot_be_reached_leaves_open_what_was_done(
    control_plane: ControlPlane, namespace: str, metastore: KubernetesMetastore
) -> None:
    """Nothing was, but a 500 may also be a write whose answer was lost: it is read."""
    revision = await metastore.write(KEY, NODE, None)

    async def write_until_asked(timeout_s: float = 30) -> None:
        deadline, at = time.monotonic() + timeout_s, revision
        while time.monotonic() < deadline:
            at = await metastore.write(KEY, NODE, at)
            await asyncio.sleep(0.2)

    unknown = pytest.raises(OutcomeUnknown, match="failed calling webhook")
    with webhook(control_plane, namespace), unknown:
        await write_until_asked()


async def test_the_server_says_how_long_to_wait_and_nothing_leaves_meanwhile(
    control_plane: ControlPlane, namespace: str
) -> None:
    bucket = TokenBucket()
    async with throttled(control_plane) as (proxy, access), reached(access, bucket) as api:
        proxy.judge = lambda method, path: Answer(429, {"Retry-After": "1"}, "TooManyRequests")
        began = time.monotonic()
        with pytest.raises(WriteRefused) as met:
            await store(api, namespace).write(KEY, NODE, None)
        assert (met.value.reason, met.value.retry_after_s) == ("Throttled", 1.0)
        proxy.judge = lambda method, path: None

        await store(api, namespace).write(KEY, NODE, None)

        assert time.monotonic() - began >= 1
        assert len(proxy.seen) == 2


async def test_a_holder_that_is_told_to_wait_longer_than_its_lease_still_renews_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with throttled(control_plane) as (proxy, access), reached(access) as api:
        settings = ElectionSettings(20_000, 6_000, 300, 500)
        elector = Elector(api, namespace, "holder", settings)
        standing = asyncio.create_task(elector.run())
        await asyncio.wait_for(elector.acquired.wait(), 20)
        answers = iter([Answer(429, {"Retry-After": "1"}), Answer(429, {"Retry-After": "60"})])
        told: list[float] = []
        has_renewed = asyncio.Event()

        def judge(method: str, path: str) -> Answer | None:
            told.append(time.monotonic())
            if len(told) > 3:  # the one after the two was taken: it goes on
                has_renewed.set()
            return next(answers, None)

        proxy.judge = judge
        await asyncio.wait_for(has_renewed.wait(), 30)

        assert elector.holds()
        assert not standing.done()
        assert told[1] - told[0] >= 1  # as it was asked
        assert told[2] - told[1] < 6  # not longer than it may
        standing.cancel()
        await asyncio.gather(standing, return_exceptions=True)


async def test_refusals_of_requests_say_which_kind_they_are(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with throttled(control_plane) as (proxy, access), reached(access) as api:
        path = f"/api/v1/namespaces/{namespace}/configmaps/none"
        with pytest.raises(ApiRefused) as gone:
            await api.get(path)
        assert gone.value.is_conflict
        proxy.judge = lambda method, path: Answer(429, {"Retry-After": "Fri, 31 Dec 2027"})
        with pytest.raises(ApiThrottled) as busy:
            await api.get(path)
        assert not busy.value.is_conflict
        assert busy.value.retry_after_s == 1


# --- what the API server is told ------------------------------------------------------------------


@asynccontextmanager
async def throttled(control_plane: ControlPlane) -> AsyncIterator[tuple[ApiProxy, KubeAccess]]:
    """A proxy, and how it is reached."""
    behind = read_kubeconfig(control_plane.kubeconfig)
    async with api_proxy(behind) as proxy:
        yield proxy, dataclasses.replace(behind, server=proxy.server, context=None)


def apply(control_plane: ControlPlane, manifest: Json, *arguments: str) -> None:
    control_plane.kubectl("apply", *arguments, "--filename=-", stdin=json.dumps(manifest))


@contextmanager
def policy(
    control_plane: ControlPlane, namespace: str, plural: str, message: str
) -> Iterator[None]:
    """A ValidatingAdmissionPolicy that lets nothing of a kind be written in a namespace."""
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [plural],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    kind, name = "ValidatingAdmissionPolicy", f"deny-{namespace}"
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
        "validations": [{"expression": "false", "message": message}],
    }
    apply(control_plane, {**head, "kind": kind, "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    apply(control_plane, {**head, "kind": f"{kind}Binding", "spec": bound})
    try:
        yield
    finally:
        control_plane.kubectl("delete", f"{kind}Binding", name)
        control_plane.kubectl("delete", kind, name)


@contextmanager
def webhook(control_plane: ControlPlane, namespace: str) -> Iterator[None]:
    """A validating webhook at an address where nothing listens."""
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["storagenodes"],
    }
    kind, name = "ValidatingWebhookConfiguration", f"away-{namespace}"
    hook = {
        "name": "away.quorate.example",
        "clientConfig": {"url": "https://127.0.0.1:1/judge"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 2,
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    apply(control_plane, {**head, "kind": kind, "webhooks": [hook]})
    try:
        yield
    finally:
        control_plane.kubectl("delete", kind, name)


async def test_a_status_is_written_only_to_the_object_that_it_is_of(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Another object may have its name by now; nothing is written then."""
    path = path_of(namespace, "zones", "first")
    spec = {"clusterRef": {"name": "main"}, "partitions": 16}
    head = {"apiVersion": API_VERSION, "kind": "Zone"}
    async with reached(read_kubeconfig(control_plane.kubeconfig)) as api:
        zone = {**head, "metadata": {"name": "first"}, "spec": spec}
        made = await api.create(path_of(namespace, "zones"), zone)

        with pytest.raises(OtherObject, match=UID) as refused:
            await api.set_status(path, {"zoneId": "a"}, uid=UID)
        assert refused.value.is_conflict
        assert "status" not in await api.get(path)

        with pytest.raises(ApiRefused) as invalid:
            await api.set_status(path, {"zoneId": 1}, uid=made["metadata"]["uid"])
        assert not isinstance(invalid.value, OtherObject)

        await api.set_status(path, {"zoneId": "a"}, uid=made["metadata"]["uid"])
        told = await api.get(path)
        assert told["status"] == {"zoneId": "a"}
