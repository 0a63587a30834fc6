"""Images as archives that containerd imports: of the storage of buildah, or of one program."""

import hashlib
import io
import json
import platform
import tarfile
import time
from pathlib import Path
from typing import Any

from kept_builds import cache_folder, keep
from quorate_images.storage import buildah

_KEPT_S = 3600.0
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_archive(storage_name: str, name: str) -> Path:
    """An image of the storage as a docker-archive, in which it is called `name`.

    It is kept in the cache, and those of other sources are removed after an hour."""
    folder = cache_folder() / "nodes-images"
    repository, _, version = storage_name.rpartition("/")[2].partition(":")
    for old in folder.glob(f"{repository}-*.tar"):
        if time.time() - old.stat().st_mtime > _KEPT_S and version not in old.name:
            old.unlink(missing_ok=True)

    def push(archive: Path) -> None:
        write_archive(storage_name, name, archive)

    return keep(folder / f"{repository}-{version}.tar", push)


def write_archive(storage_name: str, name: str, archive: Path) -> None:
    """Write an image of the storage to the file `archive`, in which it is called `name`."""
    buildah("push", "--quiet", storage_name, f"docker-archive:{archive}:{name}")


def program_archive(program: Path, name: str, archive: Path) -> None:
    """Write an image that has this static program and nothing else."""
    layer = _tar({program.name: (program.read_bytes(), 0o755)})
    machine = platform.machine()
    config: dict[str, Any] = {
        "architecture": _MACHINES.get(machine, machine),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {"config.json": config, "manifest.json": manifest}
    files = {part: (json.dumps(told).encode(), 0o644) for part, told in parts.items()}
    archive.write_bytes(_tar({**files, "layer.tar": (layer, 0o644)}))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()
