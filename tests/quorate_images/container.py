"""A container of an image beside a test: read-only files, a user of its own, no capabilities.

It has processes, mounts and a host name of its own, and the machine's network.  No container engine
runs: the program `runc` is given the image's files.  It ends when the process of `Container` does,
however that ends.
"""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component
from quorate_images.storage import Image

_HIDDEN = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


class Container(Component):
    """`image` with `arguments`, as user and group `user`; `volumes`: folder inside -> outside.

    `entrypoint` takes the place of the image's own, `folder_inside` is where it starts.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        image: Image,
        arguments: Sequence[str],
        *,
        user: int,
        volumes: Mapping[str, Path],
        entrypoint: Sequence[str] = (),
        folder_inside: str = "/",
    ) -> None:
        self._bundle = folder / "containers" / name
        self._bundle.mkdir(parents=True)
        told = _configuration(image, user, volumes)
        told["process"]["args"] = [*(entrypoint or image.entrypoint), *arguments]
        told["process"]["cwd"] = folder_inside
        (self._bundle / "config.json").write_text(json.dumps(told))
        # The kernel ends what is left in the namespace when unshare's process is gone.
        separate = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        run = ["runc", "--root", str(self._bundle / "state"), "run", "--bundle", str(self._bundle)]
        unique = f"quorate-{os.getpid()}-{name}"
        super().__init__(name, folder, [*separate, *run, unique])

    def process(self) -> Path:
        """The /proc folder of the process that is number 1 in the container, as seen from here."""
        runc = _only_child(self.pid)
        found = wait_until(lambda: _started(runc), f"process of {self.name}", 30, self.log_tail)
        assert found is not None
        return found

    def stop(self) -> int:
        """SIGTERM to the process that is number 1 in the container; its exit status."""
        os.kill(int(self.process().name), signal.SIGTERM)
        wait_until(lambda: not self.is_alive(), f"end of {self.name}", 30, self.log_tail)
        status = self.exit_status
        assert status is not None
        return status


def _only_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _started(runc: int) -> Path | None:
    """The container's process, once runc has handed over to the program of the image."""
    for task in Path(f"/proc/{runc}/task").iterdir():
        for child in (task / "children").read_text().split():
            process = Path(f"/proc/{child}")
            if b"runc" not in (process / "cmdline").read_bytes():
                return process
    return None


def _configuration(image: Image, user: int, volumes: Mapping[str, Path]) -> dict[str, Any]:
    """The container as runc reads it (OCI runtime specification 1.0), without a program."""
    nothing: list[str] = []
    kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
        },
        {
            "destination": "/dev/shm",
            "type": "tmpfs",
            "source": "shm",
            "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"],
        },
    ]
    mounts += [
        {"destination": inside, "type": "bind", "source": str(outside), "options": ["rbind", "rw"]}
        for inside, outside in volumes.items()
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": user, "gid": user},
            "env": list(image.environment),
            "capabilities": dict.fromkeys(kinds, nothing),
            "noNewPrivileges": True,
        },
        "root": {"path": str(image.root), "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            "maskedPaths": _HIDDEN,
            "readonlyPaths": _READ_ONLY,
        },
    }
