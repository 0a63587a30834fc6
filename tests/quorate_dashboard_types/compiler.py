"""The compiler of TypeScript as a judge of JSON: which values are not what their types say."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from quorate_clients.node_toolchain import node
from quorate_dashboard_types.installed import COMPILER, VERSIONS, install

TYPES = Path(__file__).with_name("types.ts")
EXCERPT = 60
_OPTIONS = {
    "strict": True,
    "noEmit": True,
    "skipLibCheck": True,
    "target": "es2022",
    "module": "esnext",
    "moduleResolution": "node10",  # finds the same files in each version of the package
    "types": [],
}
_ERROR = re.compile(
    r"^([\w-]+)/values\.ts\((?!1,)(\d+),(\d+)\): error (.*(?:\n .*)*)", re.MULTILINE
)


class Typed(NamedTuple):
    """A value and the name of its type in `types.ts`."""

    name: str
    type: str
    value: Mapping[str, object]


Refused = dict[tuple[str, str], str]
"""Version of Grafana, name of a value -> the first place in it that is refused, and why."""


def refused(values: Sequence[Typed], folder: Path) -> Refused:
    """The refusals of any version.  `folder` is empty; names are unique.

    RuntimeError when the compiler complains of anything else."""
    source = _source(values)
    for version in VERSIONS:
        (folder / version.name).mkdir()
        (folder / version.name / "node_modules").symlink_to(install(version))
        (folder / version.name / "types.ts").write_text(TYPES.read_text())
        (folder / version.name / "values.ts").write_text("\n".join(source))
    configuration = {
        "compilerOptions": _OPTIONS,
        "files": [f"{v.name}/values.ts" for v in VERSIONS],
    }
    (folder / "tsconfig.json").write_text(json.dumps(configuration))
    tsc = install(COMPILER) / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [node().program, str(tsc), "--pretty", "false"], cwd=folder, capture_output=True, text=True
    )
    found: Refused = {}
    for version_name, line, column, reason in _ERROR.findall(done.stdout):
        text = source[int(line) - 1][int(column) - 1 :]
        where = version_name, values[int(line) - 2].name
        found.setdefault(where, f"{text[:EXCERPT]} … {reason}")
    others = _ERROR.sub("", done.stdout).strip() + done.stderr
    if others or (done.returncode == 0) == bool(found):
        raise RuntimeError(f"tsc ended with {done.returncode}: {others}")
    return found


def _source(values: Sequence[Typed]) -> list[str]:
    """A line for each value, from the second on: JSON is TypeScript, too."""
    lines = ['import type { Page, Panels } from "./types";']
    for number, each in enumerate(values):
        lines.append(f"export const value{number}: {each.type} = {json.dumps(each.value)};")
    return lines
