"""The images that this machine has built, in a storage of buildah in the cache."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kept_builds import cache_folder, run_checked

_PROGRAMS = ("buildah", "debootstrap", "runc", "unshare")


@dataclass(frozen=True, slots=True)
class Image:
    """An image by its name, with its files (nobody writes there) and what a container is told."""

    name: str
    root: Path
    entrypoint: tuple[str, ...]
    environment: tuple[str, ...]
    user: str
    labels: dict[str, str]


def can_have_images() -> bool:
    """Whether this machine can build images and run them: as root, with these programs."""
    return os.getuid() == 0 and all(shutil.which(name) for name in _PROGRAMS)


def images_folder() -> Path:
    """The images' part of the cache."""
    return cache_folder() / "images"


@contextmanager
def storage_lock() -> Iterator[None]:
    """Held while images are made: a second run waits, and takes what the first one made."""
    images_folder().mkdir(parents=True, exist_ok=True)
    with (images_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def buildah(*arguments: str, folder: Path | None = None) -> str:
    """Run `buildah ARGUMENTS` on this storage and return its output; BuildError when it fails."""
    place = images_folder()
    own = ["--root", str(place / "storage"), "--runroot", str(place / "run")]
    own += ["--storage-driver", "overlay"]
    return run_checked(["buildah", *own, *arguments], folder or place)


def has_image(name: str) -> bool:
    """Whether the storage has it."""
    listed = json.loads(buildah("images", "--json")) or []
    return any(name in each["names"] for each in listed if each.get("names"))


def container_name(image: str) -> str:
    """The container of buildah's that keeps the image's files mounted."""
    return image.rpartition("/")[2].replace(":", "-")


def open_image(name: str) -> Image:
    """The image with its files mounted.  One container of buildah's keeps them so, for all runs."""
    container = container_name(name)
    known = json.loads(buildah("containers", "--json")) or []
    if not any(each["containername"] == container for each in known):
        buildah("from", "--pull=never", "--name", container, name)
    root = Path(buildah("mount", container).strip())
    told = json.loads(buildah("inspect", "--type", "image", name))["OCIv1"]["config"]
    return Image(
        name=name,
        root=root,
        entrypoint=tuple(told.get("Entrypoint", ())),
        environment=tuple(told["Env"]),
        user=told.get("User", ""),
        labels=told.get("Labels", {}),
    )
