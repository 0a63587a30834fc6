"""Record docs/pictures/session.svg: README commands on a new local cluster, with what they print.

The cluster lives in a temporary folder and is stopped at the end, also after an error.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "session.svg"
COMMANDS = (
    "quorate dev up",
    "quorate apply -f examples/zone.yaml --wait 30",
    "quorate cli library set greeting hello",
    "quorate dev kill agent-1",
    "quorate cli library get greeting",
    "quorate dev start agent-1",
    "quorate validate library --level digest",
)
WIDTH = 100
COMMAND_S = 120


def main() -> int:
    """Write the picture; return 1, with the command's output, if a command fails."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"QUORATE_FOLDER": f"{folder}/.quorate", "COLUMNS": str(WIDTH)}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        try:
            for command in COMMANDS:
                output = _run(command, environment).replace(folder, "/home/you")
                console.print(Text.assemble(("$ ", "green"), (command, "bold")))
                console.print(Text.from_ansi(output))
        except subprocess.CalledProcessError as error:
            print(f"{error.cmd} ended with {error.returncode}:\n{error.stdout}", file=sys.stderr)
            return 1
        finally:
            _run("quorate dev down", environment)
    PICTURE.write_text(_with_local_fonts(console.export_svg(title="quorate")))
    return 0


def _with_local_fonts(picture: str) -> str:
    """Return the picture without fonts that a browser would have to fetch."""
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL).replace("Fira Code, ", "")


def _run(command: str, environment: dict[str, str]) -> str:
    ended = subprocess.run(
        command.split(),
        env=environment,
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_S,
    )
    return ended.stdout.rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(main())
