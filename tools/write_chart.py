"""Generate files of the chart, or compare them with what would be generated (`--check`).

The kinds, from the same models as crds/, and the table of values, from the comments in values.yaml.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from quorate_operator.kube.write_crds import crd_files, differences, write_crds

CHART = Path(__file__).parents[1] / "charts" / "quorate"
_KINDS = Path("templates", "crds")
_TABLE = CHART / "README.md"
_MARK = "# -- "
_README = """# The chart `quorate`

<!-- Written by `make chart`: change the comments in values.yaml, not this file. -->

The operator of Quorate on Kubernetes, with its roles and kinds.
[docs/kubernetes.md](../../docs/kubernetes.md)
says how it is installed, upgraded and removed.

| value | default | what it is |
| --- | --- | --- |
"""
_KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"


def _kinds() -> dict[str, str]:
    """File name -> content."""
    return {name: _template(content) for name, content in crd_files().items()}


def _table() -> str:
    return _README + "".join(_rows())


def _template(definition: str) -> str:
    """The kind as a template: it can be left out, and stays when the release goes.

    Helm would neither update nor leave out what is in its own folder crds/."""
    if "{{" in definition:
        raise ValueError(f"a template cannot hold this kind, for it has {{{{: {definition[:200]}")
    kept = definition.replace("\nmetadata:\n", f"\nmetadata:\n{_KEEP}", 1)
    return f"{{{{- if .Values.crds.create }}}}\n{kept}{{{{- end }}}}\n"


def _rows() -> Iterator[str]:
    """A row of the table for each value with a comment."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    above: list[str] = []  # names of the objects around a line
    said = ""
    for line in text.splitlines():
        stripped = line.strip()
        depth = (len(line) - len(line.lstrip())) // 2
        if stripped.startswith(_MARK):
            said = stripped.removeprefix(_MARK)
        elif stripped and not stripped.startswith("#"):
            above[depth:] = [stripped.partition(":")[0]]
            if said:
                yield f"| `{'.'.join(above)}` | `{_at(values, above)}` | {said} |\n"
            said = ""


def _at(values: Any, names: list[str]) -> str:
    for name in names:
        values = values[name]
    return json.dumps(values)


def main() -> int:
    """Exit code 1 when --check finds a difference."""
    parser = argparse.ArgumentParser(description="Write the generated files of the chart.")
    parser.add_argument("--check", action="store_true", help="only compare")
    if not parser.parse_args().check:
        write_crds(CHART / _KINDS, _kinds())
        _TABLE.write_text(_table())
        return 0
    stale = [str(_KINDS / name) for name in differences(CHART / _KINDS, _kinds())]
    if not _TABLE.exists() or _TABLE.read_text() != _table():
        stale.append(_TABLE.name)
    if stale:
        print(f"{CHART}: {', '.join(stale)} not up to date: run make chart")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
