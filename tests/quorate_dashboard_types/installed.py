"""The npm packages with the types of dashboards, and the compiler, in the cache as pinned here."""

from pathlib import Path

from kept_builds import cache_folder, keep, version_of
from quorate_clients.node_toolchain import find_node, install_pinned

PINS = tuple(sorted(Path(__file__).with_name("pins").iterdir()))
"""A folder for each package that is installed by itself: package.json and package-lock.json."""
VERSIONS = tuple(pins for pins in PINS if pins.name.startswith("grafana-"))
"""Those with types: one for each major version of Grafana."""
COMPILER = PINS[0].with_name("typescript-5")


def is_installed() -> bool:
    """Whether the cache has all of them, and the machine what runs the compiler."""
    return find_node() is not None and all(_folder(pins).exists() for pins in PINS)


def install(pins: Path) -> Path:
    """The folder `node_modules` of one; it is fetched where the cache has it not."""
    return keep(_folder(pins), lambda partial: install_pinned(pins, partial)) / "node_modules"


def _folder(pins: Path) -> Path:
    return cache_folder() / "dashboard-types" / f"{pins.name}-{version_of(sorted(pins.iterdir()))}"
