"""The entry point of `quorate`."""

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
    gc.disable()  # imports leave no garbage, and looking for it is a tenth of their time
    from quorate_cli.commands.every import app
    from quorate_cli.guard import run_guarded
    from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, FOLDER_VARIABLE

    gc.enable()
    folder = Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER))
    run_guarded(lambda: app(prog_name="quorate"), folder)


if __name__ == "__main__":
    main()
