"""The folder for temporary files of one command."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from quorate.facts.errors import NO_ROOM, QuorateError

ROOM = "make room there (of a pod: on the disk of its node, which has its emptyDir)"


class WorkFolderFailed(QuorateError):
    """Temporary files cannot be kept; the message is a sentence with the way out."""


@contextlib.contextmanager
def work_folder(parent: Path | None, prefix: str) -> Iterator[Path]:
    """Make a folder in `parent`, and delete it at the end.  Raises WorkFolderFailed."""
    with contextlib.ExitStack() as stack:
        with work_folder_named(parent or tempfile.gettempdir()):
            if parent is not None:
                parent.mkdir(parents=True, exist_ok=True)
            name = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
            )
        yield Path(name).resolve()


@contextlib.contextmanager
def quiet_work_folder(parent: Path | None, prefix: str) -> Iterator[Path]:
    """Make such a folder, and hide what Spark's Python side prints meanwhile.

    It prints about connections that Java dropped.
    """
    with (
        work_folder(parent, prefix) as folder,
        (folder / "stderr.log").open("w") as log,
        contextlib.redirect_stderr(log),
    ):
        yield folder


@contextlib.contextmanager
def work_folder_named(folder: object) -> Iterator[None]:
    """Turn OSError of temporary files in `folder` into WorkFolderFailed."""
    try:
        yield
    except OSError as error:
        way_out = f": {ROOM}" if error.errno in NO_ROOM else ""
        raise WorkFolderFailed(
            f"temporary files in {folder} cannot be kept: {error.strerror or error}{way_out}"
        ) from error
