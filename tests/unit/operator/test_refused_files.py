"""The operator's words on a file that the system refuses."""

import errno
import os
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from quorate_operator import __main__ as program


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            "DATA: no space left on device. Way out: free some space, then start it again",
        ),
        (
            OSError(errno.EACCES, os.strerror(errno.EACCES), "/x/metastore.sqlite"),
            "/x/metastore.sqlite: permission denied. Way out: start it as the owner of the folder",
        ),
        (
            OSError(errno.EADDRINUSE, "address 127.0.0.1:7600 is in use"),
            f"[Errno {errno.EADDRINUSE}] address 127.0.0.1:7600 is in use",
        ),
    ],
    ids=["full", "forbidden", "of no file"],
)
def test_it_names_the_file_and_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: OSError,
    said: str,
) -> None:
    def refuse(*_of: object) -> NoReturn:
        raise error

    monkeypatch.setattr(sys, "argv", ["quorate-operator", "embedded", "--data", str(tmp_path)])
    monkeypatch.setattr(program, "start_logging", lambda: None)
    monkeypatch.setattr(program, "_run_embedded", refuse)

    assert program.main() == 1
    assert capsys.readouterr().err == f"quorate-operator: {said}\n".replace("DATA", str(tmp_path))
