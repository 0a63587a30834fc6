"""The one handler that turns exceptions into messages for the user.

A QuorateError, such as a Problem, is printed as a sentence, and so is an OSError with a known way
out.  Any other exception is a defect of ours: its traceback goes into a file, and the user gets one
sentence about it.
"""

import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from quorate.facts.errors import QuorateError
from quorate_cli.processes.cluster_folder import ERROR_LOG
from quorate_cli.terminal.problem import WAY_OUT, Problem, words
from quorate_cli.terminal.teller import PlainConsole

DEFECT_EXIT_CODE = 70
INTERRUPT_EXIT_CODE = 128 + signal.SIGINT


def run_guarded(work: Callable[[], None], folder: Path) -> NoReturn:
    """Do `work` and end the process.  Tracebacks go into a file of `folder`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGHUP, _stop)
    try:
        work()
    except Problem as problem:
        _say(str(problem))
        sys.exit(problem.exit_code)
    except QuorateError as error:
        _say(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        _forget_leftovers()
        _say("interrupted")
        sys.exit(INTERRUPT_EXIT_CODE)
    except OSError as error:
        way_out = WAY_OUT.get(error.errno or 0)
        if way_out is None or error.filename is None:
            _say(_keep(error, folder.absolute() / ERROR_LOG))
            sys.exit(DEFECT_EXIT_CODE)
        _say(f"{error.filename}: {words(error)}; {way_out}")
        sys.exit(1)
    except Exception as error:  # no user may see a traceback
        _say(_keep(error, folder.absolute() / ERROR_LOG))
        sys.exit(DEFECT_EXIT_CODE)
    sys.exit(0)


def _say(sentence: str) -> None:
    console = PlainConsole(stderr=True, soft_wrap=True)
    console.print(f"quorate: {sentence}", style="red")


def _keep(error: Exception, log: Path) -> str:
    """Write the traceback into `log`; return the sentence that says so."""
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, OSError):
        what = f"{error.filename}: {words(error)}" if error.filename else words(error)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(f"{datetime.now(UTC).isoformat()} {' '.join(sys.argv)}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError as second:
        return f"internal error ({what}); {log} cannot be written: {words(second)}"
    return f"internal error ({what}): please report it with the details in {log}"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    _forget_leftovers()
    raise SystemExit(128 + number)  # every `finally` runs on the way out


def _forget_leftovers() -> None:
    """Say nothing of half-made objects that an interrupted call leaves, such as an event loop.

    Their finalizers fail, and the interpreter would print a traceback for each.
    """
    sys.unraisablehook = lambda unraisable: None
    warnings.simplefilter("ignore")
