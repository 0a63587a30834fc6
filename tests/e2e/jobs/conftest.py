"""The image of Jobs on a node, once for all stories of a run that need it."""

import pytest

from quorate_images.build import build_image
from quorate_nodes.release.installed import FirstSet, Installed
from quorate_nodes.release.jobs import Jobs


@pytest.fixture(scope="session")
def jobs(installed: Installed, first_set: FirstSet) -> Jobs:
    """Quorate after the first day, with the image of Jobs on one of the nodes."""
    return Jobs(installed, build_image("spark"))
