"""`quorate`: what a person types."""

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
    from quorate_cli.commands.every import app
    from quorate_cli.guard import run_guarded
    from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER

    folder = Path(os.environ.get("QUORATE_FOLDER", DEFAULT_FOLDER))
    run_guarded(lambda: app(prog_name="quorate"), folder)


if __name__ == "__main__":
    main()
