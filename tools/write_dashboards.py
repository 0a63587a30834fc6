"""Generate the Grafana dashboards of the chart, or compare them (`--check`)."""

import argparse
import sys
from pathlib import Path

from quorate_dashboards.agent import agent
from quorate_dashboards.elements import Page
from quorate_dashboards.operators import operators
from quorate_dashboards.overview import overview
from quorate_dashboards.zone import zone

FOLDER = Path(__file__).parents[1] / "charts" / "quorate" / "files" / "dashboards"


def pages() -> list[Page]:
    """Every dashboard."""
    return [overview(), zone(), agent(), operators()]


def files() -> dict[str, str]:
    """File name -> content."""
    return {f"{page.uid.removeprefix('quorate-')}.json": page.text() for page in pages()}


def written() -> dict[str, str]:
    """The same, as it is in the chart."""
    return {path.name: path.read_text() for path in FOLDER.glob("*.json")}


def main() -> int:
    """Exit code 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description="Write the Grafana dashboards of the chart.")
    parser.add_argument("--check", action="store_true", help="only compare")
    if parser.parse_args().check:
        if files() != written():
            print(f"{FOLDER}: not up to date: run make dashboards")
            return 1
        return 0
    for name in written().keys() - files():
        (FOLDER / name).unlink()
    for name, text in files().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
