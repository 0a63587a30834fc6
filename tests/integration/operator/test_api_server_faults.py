"""The operator's side of an API server that is slow, gone, or was meddled with."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import Conflict, MetastoreUnavailable, NodeKey, OutcomeUnknown
from quorate_control_plane.control_plane import ControlPlane
from quorate_operator.kube.access import read_kubeconfig
from quorate_operator.kube.api import KubeApi, MandateLost, path_of
from quorate_operator.mastership import election_thread
from quorate_operator.mastership.election import ElectionSettings
from quorate_operator.mastership.election_thread import ElectionThread
from quorate_operator.mastership.elector import Elector
from quorate_operator.metastores.kubernetes import KubernetesMetastore
from quorate_operator.process.clock import boot_ms
from quorate_operator.process.loop_watch import LoopWatch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

KEY = NodeKey("agent-1")
NODE = NodeRecord("agent-1", "store", 1, "127.0.0.1", 7100, "127.0.0.1")
ELECTION = ElectionSettings(4_000, 2_800, 600, 600)


@pytest.fixture
async def api(control_plane: ControlPlane) -> AsyncIterator[KubeApi]:
    api = KubeApi(read_kubeconfig(control_plane.kubeconfig), None)
    yield api
    await api.close()


@pytest.fixture
def metastore(api: KubeApi, namespace: str) -> KubernetesMetastore:
    return KubernetesMetastore(api, namespace, "main")


async def test_a_write_without_an_answer_is_unknown_and_reading_tells(
    control_plane: ControlPlane, metastore: KubernetesMetastore
) -> None:
    first = await metastore.write(KEY, NODE, None)
    control_plane.api_server.pause()
    try:
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            await metastore.write(KEY, NODE, first)
        with pytest.raises(MetastoreUnavailable):
            await metastore.read(KEY)
        with pytest.raises(MetastoreUnavailable):
            await metastore.load()
        with pytest.raises(MetastoreUnavailable):
            await metastore.acquire_master_term()
        assert time.monotonic() - began < 30  # every request is bounded
    finally:
        control_plane.api_server.resume()
        await asyncio.to_thread(control_plane.wait_ready)

    stored = await metastore.read(KEY)
    assert stored is not None
    assert stored.value == NODE
    # Whichever way it went: at the revision that was read the next write goes through, at the old
    # one only if the unknown write has not happened.
    if stored.revision != first:
        with pytest.raises(Conflict):
            await metastore.write(KEY, NODE, first)
    await metastore.write(KEY, NODE, stored.revision)


async def test_an_object_that_was_changed_by_hand_is_a_conflict_then_read(
    control_plane: ControlPlane, metastore: KubernetesMetastore, namespace: str
) -> None:
    revision = await metastore.write(KEY, NODE, None)
    patch = json.dumps({"metadata": {"labels": {"by": "hand"}}})
    arguments = ("patch", "sn", "main.agent-1", f"--namespace={namespace}", "--type=merge")
    await asyncio.to_thread(control_plane.kubectl, *arguments, f"--patch={patch}")

    with pytest.raises(Conflict):
        await metastore.write(KEY, NODE, revision)

    stored = await metastore.read(KEY)
    assert stored is not None
    assert stored.value == NODE


class Never:
    """A mandate that is lost."""

    def holds(self) -> bool:
        return False


async def test_without_the_mandate_requests_read_and_never_write(
    control_plane: ControlPlane, namespace: str
) -> None:
    gated = KubeApi(read_kubeconfig(control_plane.kubeconfig), Never())
    nodes = path_of(namespace, "storagenodes")
    try:
        assert [item async for item in gated.list(nodes)] == []
        with pytest.raises(MandateLost):
            await gated.create(nodes, {})
        with pytest.raises(MandateLost):
            await gated.session.delete(gated.access.server + nodes)  # as kopf would
        with pytest.raises(OutcomeUnknown):
            await KubernetesMetastore(gated, namespace, "main").write(KEY, NODE, None)
    finally:
        await gated.close()


def elector(api: KubeApi, namespace: str, identity: str) -> Elector:
    return Elector(api, namespace, identity, ELECTION)


async def test_the_lease_goes_to_one_and_to_the_other_when_it_is_released(
    api: KubeApi, namespace: str
) -> None:
    first, second = elector(api, namespace, "first"), elector(api, namespace, "second")
    standing = [asyncio.create_task(each.run()) for each in (first, second)]
    await asyncio.wait(
        [asyncio.create_task(each.acquired.wait()) for each in (first, second)],
        return_when=asyncio.FIRST_COMPLETED,
    )
    holder, other = (first, second) if first.holds() else (second, first)
    await asyncio.sleep(ELECTION.lease_ms * 1.2 / 1000)  # renewals, not luck

    assert holder.holds()
    assert not other.holds()

    standing[0 if holder is first else 1].cancel()
    began = time.monotonic()
    await holder.release()
    assert not holder.holds()
    await other.acquired.wait()

    assert time.monotonic() - began < ELECTION.lease_ms / 1000
    lease = await api.get(
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/quorate-operator"
    )
    assert lease["spec"]["leaseTransitions"] == 2
    for task in standing:
        task.cancel()
    await asyncio.gather(*standing, return_exceptions=True)


async def test_a_holder_whose_lease_is_deleted_makes_it_again_and_stops_when_it_is_taken(
    control_plane: ControlPlane, api: KubeApi, namespace: str
) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/quorate-operator"
    holder = elector(api, namespace, "holder")
    standing = asyncio.create_task(holder.run())
    await holder.acquired.wait()

    await api.delete(path)
    await asyncio.sleep(ELECTION.retry_ms * 3 / 1000)
    assert holder.holds()
    assert (await api.get(path))["spec"]["holderIdentity"] == "holder"

    patch = json.dumps({"spec": {"holderIdentity": "another"}})
    arguments = ("patch", "lease", "quorate-operator", f"--namespace={namespace}", "--type=merge")
    await asyncio.to_thread(control_plane.kubectl, *arguments, f"--patch={patch}")
    await asyncio.wait_for(standing, ELECTION.lease_ms / 1000)

    assert not holder.holds()
    assert "another" in holder.lost_reason
    assert (await api.get(path))["spec"]["holderIdentity"] == "another"


async def test_a_holder_without_an_api_server_stops_before_its_lease_runs_out(
    control_plane: ControlPlane, api: KubeApi, namespace: str
) -> None:
    holder = elector(api, namespace, "holder")
    standing = asyncio.create_task(holder.run())
    await holder.acquired.wait()

    control_plane.api_server.pause()
    began_ms = boot_ms()
    try:
        await standing  # it ends when the deadline has passed
        held_ms = boot_ms() - began_ms
        assert not holder.holds()
    finally:
        control_plane.api_server.resume()
        await asyncio.to_thread(control_plane.wait_ready)

    assert held_ms < ELECTION.lease_ms + ELECTION.request_timeout_ms
    assert "not renewed" in holder.lost_reason


async def test_a_holder_survives_an_api_server_that_is_away_for_a_moment(
    control_plane: ControlPlane, api: KubeApi, namespace: str
) -> None:
    holder = Elector(api, namespace, "holder", ElectionSettings(20_000, 15_000, 600, 1_000))
    standing = asyncio.create_task(holder.run())
    await holder.acquired.wait()

    control_plane.api_server.pause()
    await asyncio.sleep(3)
    control_plane.api_server.resume()
    await asyncio.to_thread(control_plane.wait_ready)
    await asyncio.sleep(2)

    assert holder.holds()
    assert not standing.done()
    standing.cancel()
    await asyncio.gather(standing, return_exceptions=True)


async def test_a_loop_that_is_busy_for_longer_than_the_lease_costs_no_mastership(
    control_plane: ControlPlane, namespace: str
) -> None:
    access = read_kubeconfig(control_plane.kubeconfig)
    watch = LoopWatch()
    holder, other = (
        ElectionThread(access, namespace, name, ELECTION, watch) for name in ("holder", "other")
    )
    holder.start()
    await holder.acquired.wait()
    other.start()

    time.sleep(ELECTION.lease_ms * 1.5 / 1000)  # noqa: ASYNC251 - it is this loop that is busy

    assert holder.holds()
    assert not other.holds()
    assert holder.lease_age_s() < ELECTION.renew_deadline_ms / 1000
    await holder.stop()
    assert not holder.holds()
    async with asyncio.timeout(ELECTION.retry_ms * 3 / 1000):  # it need not run out
        await other.acquired.wait()
    await other.stop()


async def test_a_master_whose_loop_stands_still_is_not_kept_in_office(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election_thread, "STALLED_S", 1.0)
    watch = LoopWatch()  # nothing leaves marks
    holder = ElectionThread(
        read_kubeconfig(control_plane.kubeconfig), namespace, "holder", ELECTION, watch
    )
    holder.start()

    async with asyncio.timeout(ELECTION.lease_ms * 3 / 1000):
        await holder.ended.wait()

    assert not holder.holds()
    assert "event loop stands still" in holder.lost_reason
    await holder.stop()
