"""An operator that is not told where to answer about itself does so over IPv4 and IPv6."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quorate_cluster.names import own_network
from quorate_cluster.processes import environment


@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.needs("own-network")  # whose kernel may lack IPv6: else lo has ::1 there
def test_health_is_answered_over_ipv6_and_over_ipv4() -> None:
    root = Path(__file__).parents[3]
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(root / "tests")
    done = subprocess.run(
        [*own_network(), sys.executable, "-m", "quorate_cluster.health_story"],
        capture_output=True,
        text=True,
        env=variables,
        timeout=100,
    )

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen == {"::1": 200, "127.0.0.1 while there is none": 0, "127.0.0.1": 200}
