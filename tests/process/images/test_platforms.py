"""What the images need is there for other processors, too: the package index is asked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from quorate_images.build import ROOT, TARGETS

PLATFORMS = [f"manylinux{version}_aarch64" for version in ("2014", "_2_17", "_2_28", "_2_34")]


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.parametrize("target", TARGETS)
def test_every_pinned_package_has_a_wheel_for_arm64(target: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
    command += ["--require-hashes", "--only-binary", ":all:", "--target", str(tmp_path / "none")]
    command += ["--python-version", "3.13", "--implementation", "cp", "--abi", "cp313"]
    command += ["--abi", "abi3", "--abi", "none"]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    pins = tmp_path / "pins.txt"
    pinned = (ROOT / f"constraints-{target}.txt").read_text()
    # pyspark has no wheel for any: it is Python, and Java.
    pins.write_text(re.sub(r"(?ms)^pyspark==.*?(?=^\S)", "", pinned))

    resolved = subprocess.run(
        [*command, "--requirement", str(pins)], capture_output=True, text=True
    )

    assert resolved.returncode == 0, resolved.stderr
