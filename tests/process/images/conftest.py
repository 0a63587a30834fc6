"""The images of these very sources."""

from collections.abc import Callable

import pytest

from quorate_images.build import TARGETS, build_image
from quorate_images.storage import Image


@pytest.fixture(scope="session")
def images(needs: Callable[..., None]) -> dict[str, Image]:
    """Each target's image; built first where these sources have none yet."""
    needs("images")
    return {target: build_image(target) for target in TARGETS}
