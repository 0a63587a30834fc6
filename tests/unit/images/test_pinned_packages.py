"""What the images are made of is pinned like everything else, in one version."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TARGETS = ("operator", "agent", "spark")


def pins(name: str) -> dict[str, str]:
    """Package -> version and hashes, as a constraints file has them."""
    text = (ROOT / name).read_text()
    found = re.findall(r"^([a-z0-9._-]+==.*?)(?=^\S|\Z)", text, re.M | re.S)
    return {each.partition("==")[0]: each for each in found}


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_has_the_versions_that_are_tested(target: str) -> None:
    all_pins = pins("constraints.txt")
    image_pins = pins(f"constraints-{target}.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][target]]

    assert {re.split(r"[<>=]", each)[0] for each in wanted} <= set(image_pins)
    assert image_pins == {name: all_pins[name] for name in image_pins}
    assert all("--hash=sha256:" in pin for pin in image_pins.values())


def test_no_package_index_is_named() -> None:
    for path in [*ROOT.glob("constraints*.txt"), ROOT / "Dockerfile"]:
        assert "://" not in path.read_text(), path


def test_the_images_version_is_the_projects() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert f"\nARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text()
