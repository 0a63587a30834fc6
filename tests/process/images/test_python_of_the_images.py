"""The project's tests pass on the images' Python, with the packages that were found for it."""

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate_cluster.waiting import wait_until
from quorate_control_plane.kept_folder import KeptFolder
from quorate_images.build import ROOT, build_image
from quorate_images.container import Container

LEVELS = {
    "units": ["tests/unit", "tests/scenarios", "tests/property"],
    "simulation": ["tests/simulation"],
}
_PYTEST = ["/build/tools/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
_S_MAX = 1500


@pytest.mark.deep
@pytest.mark.process
@pytest.mark.needs("images")
@pytest.mark.timeout(_S_MAX + 300)
@pytest.mark.parametrize("level", LEVELS)
def test_tests_pass_inside_the_image(
    level: str, tmp_path: Path, needs: Callable[..., None]
) -> None:
    needs("images")
    image = build_image("test")
    kept = KeptFolder("quorate-image-tests-")
    home = kept.path / "tmp"
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    try:
        container = Container(
            "tests",
            kept.path,
            image,
            [
                "--rootdir=/project",
                "-m",
                "not (integration or process or spark or deep)",
                *LEVELS[level],
            ],
            user=100_000 + secrets.randbelow(2_000_000_000),
            volumes={"/project": ROOT, "/tmp": home},
            entrypoint=_PYTEST,
            folder_inside="/project",
        )
        container.start()
        wait_until(lambda: not container.is_alive(), f"end of {level}", _S_MAX, container.log_tail)

        assert container.exit_status == 0, container.log_tail(60)
    finally:
        kept.close()
