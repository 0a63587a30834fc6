"""What a kept folder undoes at its end: behind its processes, the last thing first."""

import sys
from pathlib import Path

from quorate_control_plane.components import Component
from quorate_control_plane.kept_folder import KeptFolder


def test_commands_run_behind_the_end_of_processes_and_in_reverse(tmp_path: Path) -> None:
    kept = KeptFolder("quorate-undo-")
    sleeper = Component("sleeper", kept.path, [sys.executable, "-c", "import time; time.sleep(60)"])
    sleeper.start()
    told = tmp_path / "told"
    kept.undo_at_end("sh", "-c", f"echo first >>{told}")
    kept.undo_at_end("false")
    kept.undo_at_end("/nonexistent")
    kept.undo_at_end("sh", "-c", f"ls -d {kept.path} >>{told}")
    # Ended, and not yet waited for by this process.
    kept.undo_at_end("sh", "-c", f"grep -o ') Z' /proc/{sleeper.pid}/stat >>{told}")

    kept.close()
    sleeper.forget()

    assert told.read_text().splitlines() == [") Z", str(kept.path), "first"]
    assert not kept.path.exists()
