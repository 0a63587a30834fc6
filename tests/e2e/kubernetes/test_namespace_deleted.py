"""The namespace is deleted with operator, agents and all: it goes, and volumes are kept."""

import time

import pytest

from quorate_cluster.fixtures import Measured
from quorate_cluster.outage import key_in_each
from quorate_documented.commands import Command, commands_of, first_missing
from quorate_nodes.release.digests import digests
from quorate_nodes.release.installed import AGENTS, CLUSTER, ROOT, ZONE, Installed
from quorate_nodes.volumes import clean, phase_of, volume_of

pytestmark = [pytest.mark.e2e, pytest.mark.deep, pytest.mark.timeout(400)]

MANUAL = ROOT / "docs" / "operations.md"
NAMES = ("agent-1", "agent-2", "agent-3")


def test_a_namespace_goes_with_everything_but_volumes(
    first_day: Installed, measured: Measured
) -> None:
    """The operator goes at the same time, with its rights, and nothing waits for it."""
    client = first_day.client(ZONE)
    assert client.set("greeting", "hello")
    volumes = [volume_of(first_day, agent) for agent in NAMES]
    assert all(phase_of(first_day, volume) == "Bound" for volume in volumes)
    began = time.monotonic()
    first_day.delete_namespace()
    measured("a namespace with a cluster is deleted", f"{time.monotonic() - began:.1f} s")
    for volume in volumes:
        clean(first_day, volume)  # they were released, with what they hold

    first_day.make_namespace()
    first_day.follow_manual("Install")
    first_day.follow_manual("A cluster and a zone")
    first_day.wait_whole(120)
    assert first_day.client(ZONE).get("greeting") is None, "another cluster, whose zone is empty"
    assert len(first_day.pods(AGENTS)) == 3
    assert first_day.get("secret", f"{CLUSTER}-quorate")


def test_volumes_of_a_deleted_namespace_are_found_again_with_the_secret_that_was_kept(
    first_day: Installed, measured: Measured
) -> None:
    """By the commands of the manual.  Of the ownership nothing is left but what agents store."""
    client = first_day.client(ZONE)
    keys = key_in_each(first_day.zone(ZONE)["spec"]["partitions"])
    for key in keys:
        assert client.set(key, f"kept {key}")
    first_day.wait_whole()
    before, data_id = digests(first_day, ZONE), first_day.zone(ZONE)["status"]["zoneId"]
    assert all(rows > 0 for copies in before.values() for rows, _ in copies.values())
    volumes = {agent: volume_of(first_day, agent) for agent in NAMES}
    beforehand, afterwards, found_again = _steps()
    for command in beforehand:
        _type(first_day, command)
    zone_uid = first_day.zone(ZONE)["metadata"]["uid"]

    first_day.delete_namespace()
    for volume in volumes.values():
        first_day.wait(lambda name=volume: phase_of(first_day, name) == "Released", "released")
    began = time.monotonic()
    for command in afterwards:
        _type(first_day, command)
    first_day.enforce_restricted()
    first_day.follow_manual("Install")
    first_day.follow_manual("A cluster and a zone")
    for command in found_again:
        _type(first_day, command)
    first_day.wait_whole(120)
    measured("data of a deleted namespace, whole again", f"{time.monotonic() - began:.1f} s")

    assert {agent: volume_of(first_day, agent) for agent in NAMES} == volumes
    assert first_day.zone(ZONE)["metadata"]["uid"] != zone_uid
    assert first_day.zone(ZONE)["status"]["zoneId"] == data_id
    assert not +first_day.full_copies(), "each agent has the volume that it had"
    assert digests(first_day, ZONE) == before
    client = first_day.client(ZONE)
    assert [client.get(key) for key in keys] == [f"kept {key}".encode() for key in keys]
    assert client.set("greeting", "hello again")


def _steps() -> tuple[list[Command], list[Command], list[Command]]:
    """The manual's commands: before the deletion, after it, and once all is declared again."""
    section = MANUAL.read_text().partition("**The namespace was deleted**")[2]
    commands = commands_of(section.partition("\n## ")[0])
    made = next(n for n, each in enumerate(commands) if "create namespace" in each.text)
    shown = next(n for n, each in enumerate(commands) if each.output) + 1
    assert 0 < made < shown < len(commands)
    return commands[:made], commands[made:shown], commands[shown:]


def _type(installed: Installed, command: Command) -> None:
    said = installed.type(command.text)
    assert first_missing(command.output, said) == "", said
