"""A defect ends the master of one cluster and nothing else, and the cluster is led again later."""

from collections.abc import Callable
from typing import Any

import pytest

from quorate.facts.time import Now
from quorate.protocol.master.master import Master
from quorate_loopback.namespace import Namespace
from quorate_loopback.waiting import until
from quorate_operator.declared import lead_again
from quorate_operator.declared.lead_again import LeadAgain
from quorate_operator.declared.led_cluster import LedCluster

Json = dict[str, Any]


class Defect:
    """Raised by the masters of clusters that have a zone `poison`, while it is planted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_planted = False
        tick = Master.tick

        def defective(master: Master, now: Now) -> None:
            if self.is_planted and any(z.record.name == "poison" for z in master.zones.values()):
                raise KeyError("planted")
            tick(master, now)

        monkeypatch.setattr(Master, "tick", defective)


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> Defect:
    monkeypatch.setattr(lead_again, "FAILED_PAUSE_S", 0.3)
    return Defect(monkeypatch)


def condition(declared: Namespace, kind: str, name: str, wanted: str) -> Json:
    status = declared.api.objects[declared.path(kind, name)].get("status", {})
    found = [each for each in status.get("conditions", []) if each["type"] == wanted]
    return found[0] if found else {}


def runs(declared: Namespace, name: str) -> Callable[[], bool]:
    led = declared.controller._led
    return lambda: name in led and led[name].runner.is_leading


async def test_a_defect_is_said_and_the_cluster_is_led_again_in_a_newer_mastership(
    declared: Namespace, defect: Defect
) -> None:
    declared.start()
    declared.zone("poison")
    await declared.until_available("poison")
    term = declared.controller._led["main"].runner.status().master_term
    before = declared.api.objects[declared.path("StorageCluster", "main")]["status"]

    defect.is_planted = True
    for kind, name in (("StorageCluster", "main"), ("Zone", "poison")):
        await until(
            lambda kind=kind, name=name: (
                condition(declared, kind, name, "Blocked").get("reason") == "MasterFailed"
            ),
            f"{kind} says so",
        )
        said = condition(declared, kind, name, "Blocked")
        assert said["status"] == "True"
        assert "stopped by a defect: KeyError: 'planted'" in said["message"]
    assert condition(declared, "Zone", "poison", "Available")["status"] == "Unknown"
    zone = declared.api.objects[declared.path("Zone", "poison")]["status"]
    assert (zone["phase"], zone["partitions"]["available"]) == ("Unknown", 0)
    assert condition(declared, "StorageCluster", "main", "Ready")["status"] == "False"
    told = declared.api.objects[declared.path("StorageCluster", "main")]["status"]
    for kept in ("members", "addresses"):
        assert told[kept] == before[kept]
    assert [each for each in declared.controller.problems() if "stopped by a defect" in each]
    await until(
        lambda: any(
            each.get("reason") == "MasterFailed" and each["type"] == "Warning"
            for path, each in declared.api.objects.items()
            if "/events/" in path
        ),
        "an Event",
    )
    assert not declared.controller.decides

    defect.is_planted = False
    await declared.until_available("poison")

    assert condition(declared, "Zone", "poison", "Blocked")["status"] == "False"
    assert declared.controller._led["main"].runner.status().master_term > term
    assert declared.controller.problems() == []
    assert declared.failures == []
    [family] = declared.metrics.master_defects.collect()
    counted = [each for each in family.samples if each.name.endswith("_total")]
    assert [each.labels for each in counted] == [{"namespace": "default", "cluster": "main"}]
    assert counted[0].value >= 1


async def test_attempts_become_rarer(
    declared: Namespace, defect: Defect, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[int] = []
    real = LeadAgain.failed
    monkeypatch.setattr(lead_again, "FAILED_PAUSE_S", 0.05)
    declared.start()
    declared.zone("poison")
    await declared.until_available("poison")

    def failed(self: LeadAgain, name: str, why: str) -> None:
        real(self, name, why)
        times.append(self._failed[name][0])

    monkeypatch.setattr(LeadAgain, "failed", failed)
    defect.is_planted = True

    await until(lambda: len(times) == 3, "three attempts")

    assert times == [1, 2, 3]


@pytest.mark.parametrize("place", ["look", "zone_status"])
async def test_a_defect_in_the_work_at_one_cluster_does_not_stop_the_others(
    declared: Namespace, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    declared.start()
    declared.zone("first")
    await declared.until_available("first")
    real = getattr(LedCluster, place)
    is_planted = True

    def fails(led: LedCluster, *arguments: object) -> object:
        if is_planted and led.cluster.metadata.name == "main":
            raise KeyError("planted")
        return real(led, *arguments)

    monkeypatch.setattr(LedCluster, place, fails)
    monkeypatch.setattr(lead_again, "FAILED_PAUSE_S", 0.1)
    declared.declare("StorageCluster", "other", external={"addresses": ["127.0.0.1:9"]})
    declared.zone("first", replicas=2)

    await until(
        lambda: any("KeyError: 'planted'" in each for each in declared.controller.problems()),
        "it is said",
    )
    await until(lambda: "other" in declared.controller._led, "the other one is led")
    assert declared.failures == []

    is_planted = False
    await declared.until_available("first")
    await until(
        lambda: not [e for e in declared.controller.problems() if "main" in e or "first" in e],
        "no problem is left",
        40,
    )
