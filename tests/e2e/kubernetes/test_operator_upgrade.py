"""Another operator, or none for a while: agents' pods stay as they are, and serve."""

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import Pulses
from quorate_cluster.served import NotServed
from quorate_nodes.release.installed import CLUSTER, OPERATORS, REGISTRY, VERSION, ZONE, Installed

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

UPGRADE = "helm upgrade quorate charts/quorate --namespace storage --reset-then-reuse-values"
ROLLED_OUT = "kubectl --namespace storage rollout status deployment/quorate-operator"
ANOTHER = "another"


def test_an_upgrade_and_an_end_of_the_operator_restart_no_agent(
    first_day: Installed, measured: Measured
) -> None:
    nodes = first_day.nodes
    (image,) = {pod["spec"]["containers"][0]["image"] for pod in first_day.pods(OPERATORS)}
    assert image == f"{REGISTRY}/quorate-operator:{VERSION}"
    for node in nodes.nodes:
        node.tag_image(image, f"{REGISTRY}/quorate-operator:{ANOTHER}")
    before, copied = _uids(first_day), first_day.full_copies()
    former = _uids(first_day, OPERATORS)
    with Pulses(first_day, ZONE, keys_max=8) as pulses:
        annotated = f"--set image.tag={ANOTHER} --set operator.podAnnotations.example=other"
        first_day.type(f"{UPGRADE} {annotated}\n{ROLLED_OUT}")
        _wait_led(first_day)
        first_day.wait(lambda: _uids(first_day, OPERATORS).isdisjoint(former), "other operators")
        images = [pod["spec"]["containers"][0]["image"] for pod in first_day.pods(OPERATORS)]
        assert images == [f"{REGISTRY}/quorate-operator:{ANOTHER}"] * 2
        assert _uids(first_day) == before

        first_day.follow_manual("Uninstall")
        first_day.wait(lambda: not first_day.pods(OPERATORS), "no operator")
        assert first_day.get("zone", ZONE)["status"]["phase"], "the kinds stay"
        first_day.follow_manual("Install")
        _wait_led(first_day)
        assert _uids(first_day) == before
    measured("operator upgraded, uninstalled, installed", f"failed commands {len(pulses.failed)}")
    assert _uids(first_day) == before
    assert first_day.full_copies() - copied == {}
    assert pulses.lost() == []
    if pulses.failed:
        raise NotServed(f"nobody was hurt, and yet: {pulses.failed}")


def _uids(installed: Installed, *selector: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in installed.pods(*selector)}


def _wait_led(installed: Installed) -> None:
    """Until one of the operators that are there now leads, and finds nothing to change."""

    def is_led() -> bool:
        status = installed.get("storagecluster", CLUSTER)["status"]
        names = [pod["metadata"]["name"] for pod in installed.pods(OPERATORS)]
        identity = status.get("master", {}).get("identity", "")
        return identity.partition("/")[0] in names and installed.is_whole()

    installed.wait(is_led, "a new operator that leads a whole cluster", 90)
