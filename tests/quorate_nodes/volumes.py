"""The nodes' local volumes, as whoever runs the nodes sees them: whose they are, and made empty."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import CLUSTER, NAMESPACE, Installed


def claim_of(installed: Installed, agent: str) -> Json:
    """The agent's claim; empty while there is none."""
    return installed.nodes.found("pvc", f"{CLUSTER}-{agent}", NAMESPACE) or {}


def volume_of(installed: Installed, agent: str) -> str:
    """The name of the volume that the agent's claim is bound to; empty while there is none."""
    return str(claim_of(installed, agent).get("spec", {}).get("volumeName", ""))


def phase_of(installed: Installed, volume: str) -> str:
    """Available, Bound or Released."""
    return str(installed.nodes.get("pv", volume)["status"].get("phase", ""))


def clean(installed: Installed, volume: str) -> None:
    """Erase what a released volume has, and offer it to other claims."""
    installed.wait(lambda: phase_of(installed, volume) == "Released", f"{volume} released")
    node, _, number = volume.rpartition("-")
    path = installed.nodes.node(node).volume(int(number))
    for each in path.iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    installed.nodes.kubectl("patch", "pv", volume, '--patch={"spec":{"claimRef":null}}')
    installed.wait(lambda: phase_of(installed, volume) == "Available", f"{volume} available")


@contextmanager
def claimed(installed: Installed, name: str) -> Iterator[None]:
    """A claim for exports; in the end its volume is free again."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    installed.kubectl("apply", "--filename=-", stdin=json.dumps(claim))
    try:
        yield
    finally:
        volume = installed.get("pvc", name)["spec"].get("volumeName", "")
        installed.kubectl("delete", "pvc", name)
        if volume:
            clean(installed, volume)
