"""`quorate apply`: what is refused is refused before anything is stored."""

from collections.abc import Callable
from pathlib import Path

import pytest

from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.objects import resources

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "zone.yaml"
WRONG = """
---
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: wrong}
spec:
  clusterRef: {name: main}
  dataNodesFilter: "$[?(@.region = 'EU')]"
---
apiVersion: quorate.io/v1alpha1
kind: Zone
metadata: {name: elsewhere}
spec: {clusterRef: {name: other}}
"""
PAUSED = 'metadata:\n  annotations: {quorate.io/paused: "true"}\n'

Quorate = Callable[..., str]


@pytest.mark.parametrize("option", [["--dry-run"], []], ids=["dry run", "apply"])
def test_a_file_is_applied_whole_or_not_at_all(
    quorate: Quorate, cluster: DevCluster, tmp_path: Path, option: list[str]
) -> None:
    quorate("dev", "up", "--agents", "1")
    file = tmp_path / "zones.yaml"
    file.write_text(EXAMPLE.read_text() + WRONG)

    said = quorate("apply", "-f", str(file), *option, code=1)

    assert "created" not in said
    assert f"{file}, document 2: Zone wrong: spec.dataNodesFilter is $[?(@.region = 'EU" in said
    assert f"{file}, document 3: Zone elsewhere: spec.clusterRef.name is other, and there" in said
    assert "nothing was changed" in said
    assert resources.fetch_all(cluster.api(), resources.ZONE) == []


def test_without_waiting_the_first_condition_is_told(quorate: Quorate) -> None:
    quorate("dev", "up")

    said = quorate("apply", "-f", str(EXAMPLE))

    assert "zone/library created; Accepted is True: led by the master of main" in said
    assert "zone library: quorate cli library, or redis-cli -c -h 127.0.0.1 -p " in said


def test_an_annotation_pauses_a_zone_until_the_zone_is_applied_without_it(
    quorate: Quorate, tmp_path: Path
) -> None:
    paused = tmp_path / "paused.yaml"
    paused.write_text(EXAMPLE.read_text().replace("metadata:\n", PAUSED))
    quorate("dev", "up")

    said = quorate("apply", "-f", str(paused))
    assert "zone/library created; Accepted is False: Zone library has the annotation" in said

    said = quorate("apply", "-f", str(EXAMPLE), "--wait", "60")
    assert "zone/library changed (annotation quorate.io/paused: true -> None)" in said

    assert "paused: None -> true" in quorate("apply", "-f", str(paused))
