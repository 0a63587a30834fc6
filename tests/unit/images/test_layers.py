"""The project is the last layer of each image: a node that has an earlier version pulls only it."""

import re
from pathlib import Path

import pytest

from quorate_images.build import TARGETS

DOCKERFILE = (Path(__file__).parents[3] / "Dockerfile").read_text()
WHEEL = "COPY --from=wheel"


def _stage(name: str) -> list[str]:
    """The lines of the stage of this name."""
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.M | re.S)
    assert found is not None, name
    return found.group(1).splitlines()


@pytest.mark.parametrize("target", TARGETS)
def test_dependencies_and_the_project_are_layers_of_their_own(target: str) -> None:
    made = [line for line in _stage(target) if line.startswith(("COPY", "RUN"))]

    assert made[-2:] == [
        f"COPY --from={target}-environment /opt/quorate /opt/quorate",
        f"COPY --from={target}-project /project /opt/quorate",
    ]
    assert not any(line.startswith(WHEEL) for line in _stage(f"{target}-environment"))
    assert any(line.startswith(WHEEL) for line in _stage(f"{target}-project"))
