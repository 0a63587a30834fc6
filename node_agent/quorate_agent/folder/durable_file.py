"""Replaces small files so that a crash leaves the old or the new content, never a mix."""

import os
from pathlib import Path


def write_durably(file: Path, text: str) -> None:
    """Replace `file` by one with `text`; durable on return."""
    written = file.with_name(file.name + ".new")
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        data = text.encode()
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    written.rename(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Make creations, renames and removals in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
