"""The entry point of `kubectl quorate`."""

import gc
import os
import signal
import sys
from pathlib import Path

if not __debug__:  # first of all: without asserts the checks protect nothing
    sys.exit("quorate: python -O removes checks that protect data: start without -O")


def main() -> None:
    """Run one command; the process ends here."""
    # Nothing has begun while imports run: Ctrl-C then ends without a traceback of ours.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # imports leave hardly any garbage: looking for it takes 40 ms of CPU
    from quorate_cli.guard import run_guarded
    from quorate_cli.kubectl.app import app

    gc.enable()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    run_guarded(lambda: app(prog_name="kubectl quorate"), cache / "quorate")


if __name__ == "__main__":
    main()
