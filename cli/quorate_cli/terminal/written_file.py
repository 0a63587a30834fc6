"""Writes a small file atomically."""

import os
from contextlib import suppress
from pathlib import Path

from quorate_cli.terminal.problem import WAY_OUT, Problem, words


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` by `data` atomically; raise Problem if it cannot be written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
        os.replace(beside, path)
    except OSError as error:
        way_out = WAY_OUT.get(error.errno or 0, "name another folder with --folder")
        raise Problem(f"{path} cannot be written: {words(error)}; {way_out}") from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
