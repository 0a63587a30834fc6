"""Runs on real nodes without enough memory, time or an image; an export to a volume, and an import
that is compared while nothing is written."""

import pytest

from quorate_cluster.outage import Pulses
from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import CLUSTER, ZONE, Installed
from quorate_nodes.release.jobs import Jobs
from quorate_nodes.volumes import claimed

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(900)]

CLAIM, PATH = "backups", "library/monday"
PLACE = {"persistentVolumeClaim": {"claimName": CLAIM, "path": PATH}}
DEADLINE_S = 15
"""Spark takes longer until it has compared anything."""


def test_runs_without_memory_time_or_image_say_what_they_lack(
    first_day: Installed, jobs: Jobs
) -> None:
    elsewhere = {"kubernetes.io/hostname": first_day.nodes.nodes[1].name}
    small = {"limits": {"memory": "300Mi"}}
    runs = {
        "no-memory": {"resources": small},
        "no-time": {"deadlineSeconds": DEADLINE_S},
        "no-image": {"nodeSelector": elsewhere, "deadlineSeconds": 4 * DEADLINE_S},
    }
    with jobs.upgraded(), jobs.deleted_in_the_end("datavalidations"):
        for name, more in runs.items():
            run = {"zoneRef": {"name": ZONE}, "level": "Rows", **jobs.place, **more}
            jobs.declare("DataValidation", name, **run)
        ends = {name: jobs.wait_end("datavalidation", name) for name in runs}
    assert {each["verdict"] for each in ends.values()} == {"CouldNotTell"}, ends
    assert "memory" in ends["no-memory"]["message"], ends
    assert f"deadlineSeconds ({DEADLINE_S})" in ends["no-time"]["message"], ends
    assert "image" in ends["no-image"]["message"], ends


def test_an_export_to_a_volume_is_imported_and_compared_while_nothing_is_written(
    first_day: Installed, jobs: Jobs
) -> None:
    client = first_day.client(ZONE)
    client.set("kept", "in a volume")
    shelves = {"clusterRef": {"name": CLUSTER}, "partitions": 4, "deletionPolicy": "Delete"}
    with (
        jobs.upgraded(),
        claimed(first_day, CLAIM),
        jobs.deleted_in_the_end("zonebackups,zonerestores,datavalidations"),
        first_day.zone_made("shelves", shelves),
    ):
        jobs.declare("ZoneBackup", "monday", **_of(ZONE), **jobs.place, destination=PLACE)
        exported = jobs.wait_end("zonebackup", "monday")
        assert exported["outcome"] == "Complete", exported
        jobs.declare("ZoneRestore", "back", **_of("shelves"), **jobs.place, source=PLACE)
        restored = jobs.wait_end("zonerestore", "back")
        assert restored["outcome"] == "Complete", restored
        assert (restored["rows"], restored["digest"]) == (exported["rows"], exported["digest"])
        assert first_day.client("shelves").get("kept") == b"in a volume"

        idle = {**_of("shelves"), **jobs.place, "level": "Rows", "mode": "Idle"}
        jobs.declare("DataValidation", "quiet", **idle)
        quiet = jobs.wait_end("datavalidation", "quiet")
        assert (quiet["verdict"], quiet["mode"]) == ("Agree", "Idle"), quiet
        assert quiet["settledKeys"] == exported["rows"], quiet
        with Pulses(first_day, "shelves", keys_max=1):
            jobs.declare("DataValidation", "disturbed", **idle)
            disturbed = jobs.wait_end("datavalidation", "disturbed")
        assert (disturbed["verdict"], disturbed["mode"]) == ("CouldNotTell", "Idle"), disturbed


def _of(zone: str) -> Json:
    return {"zoneRef": {"name": zone}}
