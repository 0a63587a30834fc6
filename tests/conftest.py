"""What tests of every level share."""

import os
import signal

from hypothesis import settings

pytest_plugins = [
    "lanes",
    "machine_parts",
    "fresh_seeds",
    "deep_tests",
    "processor_time",
    "quorate_control_plane.fixtures",
    "quorate_cluster.fixtures",
    "machine_standstills",  # behind those whose sections it shows
]

# A machine that is busy must not fail a test by its speed, and a failure must come back.
settings.register_profile("quorate", deadline=None, derandomize=True, database=None)
settings.load_profile("quorate")

# Thousands of processes start: none should have to compile, which takes as long as the rest of a
# start together.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In the background of a shell it is ignored, also by every process that a test starts and then
    # wants to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
