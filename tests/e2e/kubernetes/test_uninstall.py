"""All is taken away but what holds data; the same manifests find that data again."""

import time

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import key_in_each
from quorate_nodes.release.digests import digests
from quorate_nodes.release.installed import AGENTS, CLUSTER, OPERATORS, ZONE, Installed
from quorate_nodes.volumes import claim_of

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(400)]

NAMES = ("agent-1", "agent-2", "agent-3")


def test_what_was_declared_before_finds_its_data(first_day: Installed, measured: Measured) -> None:
    """In one go, as a tool that prunes does it: the kinds' objects go while the operator does."""
    client = first_day.client(ZONE)
    keys = key_in_each(first_day.zone(ZONE)["spec"]["partitions"])
    for key in keys:
        assert client.set(key, key)
    first_day.wait_whole()
    before = digests(first_day, ZONE)
    assert all(rows > 0 for copies in before.values() for rows, _ in copies.values())
    kept, data_id = _kept(first_day), first_day.zone(ZONE)["status"]["zoneId"]

    first_day.kubectl("delete", "zone,storagecluster", "--all", "--wait=false")
    first_day.follow_manual("Uninstall")
    first_day.wait(lambda: not first_day.pods(OPERATORS), "no operator")
    assert _kept(first_day) == kept
    # Whether the operator still let go of the cluster is a matter of moments: the next one does.
    first_day.follow_manual("Install")
    first_day.kubectl("wait", "--for=delete", f"storagecluster/{CLUSTER}", "--timeout=60s")
    first_day.wait(lambda: not first_day.pods(AGENTS), "no pod")
    first_day.wait(
        lambda: not first_day.kubectl("get", "service,statefulset,pdb", AGENTS, "--output=name"),
        "nothing of the agents but what holds data",
    )
    assert _kept(first_day) == kept

    began = time.monotonic()
    first_day.follow_manual("A cluster and a zone")
    first_day.wait_whole(120)
    measured("declared again, whole", f"{time.monotonic() - began:.1f} s")
    assert _kept(first_day) == kept
    assert first_day.zone(ZONE)["status"]["zoneId"] == data_id
    assert not +first_day.full_copies(), "each agent has the volume that it had"
    assert digests(first_day, ZONE) == before
    client = first_day.client(ZONE)
    assert [client.get(key) for key in keys] == [key.encode() for key in keys]


def _kept(installed: Installed) -> list[str]:
    """The uids of claims and Secret."""
    secret = installed.get("secret", f"{CLUSTER}-quorate")
    return [each["metadata"]["uid"] for each in (secret, *(claim_of(installed, n) for n in NAMES))]
