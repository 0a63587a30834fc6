"""A small file that is either the old one or the new one, whatever happens meanwhile."""

import os
from pathlib import Path

from quorate_cli.problem import Problem, words


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` by `data` in one step; Problem when the disk does not take it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Problem(
            f"{path} cannot be written: {words(error)}; make room or give another --folder"
        ) from error
