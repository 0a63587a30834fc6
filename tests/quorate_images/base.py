"""The base of the images where no image registry can be reached: Debian with its own Python.

`debootstrap` takes it from the package archive that this machine is set up with.  There are two:
what images are made of, and what they are built in, which has the module venv as well.
"""

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from kept_builds import BuildError, run_checked, version_of
from quorate_images.storage import buildah, has_image, images_folder

SUITE = "trixie"  # Debian 13, whose Python is 3.13
_PACKAGES = ("python3", "python3-venv", "ca-certificates")
_BUILD_PACKAGES = r"python3.*-venv|python3-.*-whl"
_TARGET = "$(REPO_URI)\t$(ORIGIN)\t$(LABEL)\t$(COMPONENT)"
_PATH = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Say = Callable[[str], None]


def make_bases(say: Say) -> tuple[str, str]:
    """The names of the base and of the build base, made first where they are not there."""
    version = f"{SUITE}-{version_of([Path(__file__)])}"
    base, build_base = (f"localhost/quorate-{kind}:{version}" for kind in ("base", "build-base"))
    if not (has_image(base) and has_image(build_base)):
        say(f"Debian {SUITE}: one to three minutes")
        with tempfile.TemporaryDirectory(dir=images_folder(), prefix="debian-") as work:
            root = Path(work)
            root.chmod(0o755)
            include = f"--include={','.join(_PACKAGES)}"
            command = ["debootstrap", "--variant=minbase", include, SUITE, work, _archive()]
            run_checked(command, root.parent)
            _clean(root)
            _commit(root, build_base)
            _purge(root)
            _commit(root, base)
    return base, build_base


def _archive() -> str:
    """Return Debian's own archive, or the mirror of it, that this machine is set up with."""
    command = ["apt-get", "indextargets", "--format", _TARGET, "Created-By: Packages"]
    return choose_archive(run_checked(command, Path("/")))


def choose_archive(listed: str) -> str:
    """Return the first archive of Debian in what apt lists, one in a line as `_TARGET` has it.

    Others (of security updates, of a vendor) lack most packages.  Who made an archive is not known
    before apt has fetched its lists: then its address must end as that of a mirror does.
    """
    targets = [line.split("\t") for line in listed.splitlines()]
    for uri, origin, label, component in targets:
        if (origin, label, component) == ("Debian", "Debian", "main"):
            return uri
    for uri, origin, _, component in targets:
        if not origin and component == "main" and uri.rstrip("/").endswith("/debian"):
            return uri
    known = ", ".join(sorted({uri for uri, *_ in targets})) or "none"
    raise BuildError(
        f"apt knows no archive of Debian itself (it knows: {known}): add one to"
        " /etc/apt/sources.list, with component main, and run apt-get update"
    )


def _clean(root: Path) -> None:
    """Remove what says something of this machine, and what no program reads."""
    for name in ("etc/apt/sources.list", "etc/resolv.conf", "etc/hostname"):
        (root / name).unlink(missing_ok=True)
    for name in ("var/log", "var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(root / name)
        (root / name).mkdir()
    for name in ("usr/share/man", "usr/share/locale", "usr/share/info"):
        shutil.rmtree(root / name, ignore_errors=True)
    for path in (root / "usr/share/doc").rglob("*"):  # licences stay
        if path.name != "copyright" and not path.is_dir():
            path.unlink()


def _purge(root: Path) -> None:
    """Take the packages away that only a build needs; Debian's own list of packages stays true."""
    known = run_checked(["chroot", str(root), "dpkg-query", "--show"], root).splitlines()
    names = [line.split()[0] for line in known]
    gone = [name for name in names if re.fullmatch(_BUILD_PACKAGES, name)]
    run_checked(["chroot", str(root), "dpkg", "--purge", *gone], root)


def _commit(root: Path, name: str) -> None:
    container = buildah("from", "scratch").strip()
    try:
        buildah("copy", "--quiet", container, str(root), "/")
        buildah("config", "--env", _PATH, "--env", "LANG=C.UTF-8", "--cmd", "python3", container)
        buildah("commit", "--quiet", container, name)
    finally:
        buildah("rm", container)
