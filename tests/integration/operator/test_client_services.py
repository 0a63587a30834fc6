"""Two managed clusters of a real API server serve a zone of one name: which has its Service."""

import asyncio
import json

import pytest

from quorate_cluster.road import ROLE
from quorate_control_plane.control_plane import ControlPlane
from quorate_loopback.waiting import closed
from quorate_operator import names
from quorate_operator.kube.access import find_access
from quorate_operator.kube.api import KubeApi
from quorate_operator.kube.scope import Scope
from quorate_operator.kube.shared_watch import SharedWatches
from quorate_operator.owned.apply import WATCHED
from quorate_owned.rivals import Rivals, manifest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


async def test_a_declared_zone_has_its_service_and_kept_data_of_another_cluster_has_not(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The operator has the rights of the examples, and no garbage collector deletes the Service."""
    here = f"--namespace={namespace}"

    async def kubectl(*arguments: str, stdin: str | None = None) -> str:
        made = await asyncio.to_thread(control_plane.kubectl, *arguments, here, stdin=stdin)
        return str(made.stdout)

    async def revision() -> str:
        return str((await rivals.service())["metadata"]["resourceVersion"])

    await kubectl("apply", f"--filename={ROLE}")
    bodies = [
        json.loads(
            await kubectl(
                "create", "--filename=-", "--output=json", stdin=json.dumps(manifest(name))
            )
        )
        for name in ("a", "b")
    ]
    account = f"system:serviceaccount:{namespace}:quorate-operator"
    api = KubeApi(find_access(control_plane.kubeconfig_for(account)), None)
    failures: list[str] = []
    scope = Scope((namespace,), namespace)
    watches = SharedWatches(api, scope, WATCHED, names.LABEL_CLUSTER, failures.append)
    rivals = Rivals(api, namespace, watches, *bodies)
    try:
        rivals.declare("a")
        for cluster in ("a", "b"):
            rivals.see(cluster)
        await rivals.until_leads_to("a")
        rivals.retain()
        await rivals.until(lambda: rivals.is_named("a"), "named")

        rivals.declare("b")
        await rivals.until_leads_to("b")
        await rivals.until(lambda: rivals.why("a") and rivals.is_named("b"), "told")
        made = await revision()
        rivals.retain()
        await rivals.until(lambda: "is that of StorageCluster b" in rivals.why("a"), "told of it")

        await kubectl("delete", "storagecluster", "a", "--wait")
        del rivals.clusters["a"]
        rivals.runners.pop("a").is_stopped = True
        await rivals.until_gone("a-agents")  # the garbage collector has seen that `a` is gone
        assert await revision() == made
        assert await rivals.leads_to() == ("b",) * 3

        rivals.erase("b")
        await rivals.until_leads_to("")
        assert failures == rivals.failures == []
    finally:
        await rivals.owned.close()
        await watches.close()
        await closed(api)
