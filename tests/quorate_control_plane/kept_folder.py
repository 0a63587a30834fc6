"""A temporary folder whose processes end, and which goes away, when the test run does."""

import itertools
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from quorate_control_plane import keeper

_END_S_MAX = 120.0


class KeptFolder:
    """The folder `path` with `path/log`, and `path/run` where Components record themselves.

    `path/undo` has the commands of `undo_at_end`.

    It lives until `close`, or until this process is gone: see `keeper`.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._undone = itertools.count()
        try:
            for name in ("log", "run", "undo"):
                (self.path / name).mkdir()
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", keeper.__file__, str(self.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            assert self._keeper.stdout is not None
            self._keeper.stdout.readline()  # from here on it survives a Ctrl-C
        except BaseException:
            shutil.rmtree(self.path)
            raise

    def undo_at_end(self, *command: str) -> None:
        """Have `command` run behind the end of all processes; the last one that was told first."""
        (self.path / "undo" / f"{next(self._undone):06}").write_text(json.dumps(command))

    def close(self) -> None:
        """Kill every recorded process and remove the folder; a second time does nothing."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        if self._keeper.stdin.closed:
            return
        self._keeper.stdin.close()
        self._keeper.wait(_END_S_MAX)
        self._keeper.stdout.close()
