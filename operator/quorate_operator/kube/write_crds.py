"""Writes `crds/` from the models, or compares it with them (`--check`)."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from quorate.wire.crds import crds

_HEADER = "# Generated from core/quorate/wire by `make crds`: change the models, not this file.\n"


def crd_files() -> dict[str, str]:
    """Return file name -> content."""
    return {
        f"{stem}.yaml": _HEADER + yaml.safe_dump(definition, sort_keys=False, width=100)
        for stem, definition in crds().items()
    }


def differences(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Return the names of missing, stale or superfluous files.  `wanted`: name -> content."""
    found = {path.name: path.read_text() for path in folder.glob("*.yaml")}
    return sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))


def write_crds(folder: Path, wanted: Mapping[str, str]) -> None:
    """Write all files and remove those of kinds that no longer exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.glob("*.yaml")):
        if path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (folder / name).write_text(content)


def main() -> int:
    """Return the exit code: 1 if --check finds a difference."""
    parser = argparse.ArgumentParser(description="Write the CustomResourceDefinitions.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args()
    if not arguments.check:
        write_crds(arguments.folder, crd_files())
        return 0
    stale = differences(arguments.folder, crd_files())
    if stale:
        print(f"{arguments.folder}: {', '.join(stale)} not up to date: run make crds")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
