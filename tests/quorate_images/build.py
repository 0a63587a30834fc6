"""Build the Dockerfile's targets on this machine, once for their sources.

The base takes one to three minutes, once; an image after that under half a minute, or some seconds
where only the project's own sources are new.  Python packages come from the index that this machine
is set up with: its settings and certificates are mounted for the build and stay outside the images.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kept_builds import BuildError, version_of
from quorate_images import base
from quorate_images.base import Say, make_bases
from quorate_images.storage import (
    Image,
    buildah,
    container_name,
    has_image,
    images_folder,
    open_image,
    storage_lock,
)

TARGETS = ("operator", "agent", "spark")
ROOT = Path(__file__).parents[2]
_COMPONENTS = ("core", "operator", "node_agent", "spark", "cli")
_FILES = ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md")
_KEPT = timedelta(days=1)
_INSIDE = "/mnt"  # an empty folder of the base: to mount something there leaves no trace
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def image_name(target: str) -> str:
    """Return the name of the image of these sources; other sources have another name."""
    return f"localhost/quorate-{target}:{version_of(_sources())}"


def build_image(target: str, say: Say = lambda _: None) -> Image:
    """The image of the Dockerfile's `target`, built first where it is not there.

    BuildError says which step failed."""
    name = image_name(target)
    with storage_lock():
        if not has_image(name):
            bases = make_bases(say)
            say(f"image {target}")
            _remove_old_images(bases)
            with tempfile.TemporaryDirectory(dir=images_folder(), prefix="settings-") as folder:
                _build(target, name, bases, Path(folder))
        return open_image(name)


def _sources() -> list[Path]:
    found = [ROOT / name for name in _FILES]
    found += sorted(ROOT.glob("constraints*.txt"))
    for component in _COMPONENTS:
        found += sorted(
            path
            for path in (ROOT / component).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        )
    return [*found, Path(__file__), Path(base.__file__)]


def _build(target: str, name: str, bases: tuple[str, str], settings: Path) -> None:
    packages = images_folder() / "pip"
    packages.mkdir(exist_ok=True)
    certificates = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE") or _CERTIFICATES
    shutil.copyfile(certificates, settings / "certificates.crt")
    (settings / "pip.conf").write_text(_index_settings())
    command = ["build", "--quiet", "--layers", "--pull=never", "--target", target, "--tag", name]
    # Steps run in a chroot on the machine's network: this needs no cgroups and no network plugin.
    command += ["--isolation", "chroot", "--network", "host"]
    given = {"BASE": bases[0], "BUILD_BASE": bases[1], "PIP_CONFIG_FILE": f"{_INSIDE}/pip.conf"}
    for argument, value in given.items():
        command += ["--build-arg", f"{argument}={value}"]
    for outside, inside in {settings: _INSIDE, packages: f"{_INSIDE}/packages"}.items():
        command += ["--volume", f"{outside}:{inside}"]
    buildah(*command, ".", folder=ROOT)


def _index_settings() -> str:
    """Settings for pip inside: from which index, and how it is reached, as on this machine."""
    lines = ["[global]", "disable-pip-version-check = true", f"cert = {_INSIDE}/certificates.crt"]
    lines.append(f"cache-dir = {_INSIDE}/packages")
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True
    )
    for line in told.stdout.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name.endswith(("-url", "-host")) or name in ("proxy", "timeout"):
            lines.append(f"{name} = {' '.join(str(ast.literal_eval(value)).split())}")
    return "\n".join(lines) + "\n"


def _remove_old_images(bases: tuple[str, str]) -> None:
    """Remove images of other sources that are older than a day, and layers that no image has."""
    for listed in json.loads(buildah("images", "--all", "--json")) or []:
        names = listed.get("names") or []
        age = datetime.now(UTC) - datetime.fromisoformat(listed["createdatraw"])
        if age > _KEPT and not {*names} & {*bases}:
            for name in names:
                with suppress(BuildError):  # nobody has opened it
                    buildah("rm", container_name(name))
            with suppress(BuildError):  # another image stands on it
                buildah("rmi", listed["id"])
