"""`kubectl quorate`: what a person types."""

import os
import signal
import sys
from pathlib import Path

if not __debug__:  # before anything else is imported: a check that is gone protects nobody
    sys.exit("quorate: started with -O, which removes checks that protect data: start without it")


def main() -> None:
    """Run one command; the process ends here."""
    # Imports take a while, and nothing has begun: Ctrl-C ends it without a traceback of ours.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from quorate_cli.guard import run_guarded
    from quorate_cli.kubectl.app import app

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    run_guarded(lambda: app(prog_name="kubectl quorate"), cache / "quorate")


if __name__ == "__main__":
    main()
