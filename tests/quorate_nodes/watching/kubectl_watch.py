"""`kubectl get --watch` beside a test."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Self

from quorate_cluster.background import Background


class KubectlWatch(Background, ABC):
    """`with KubectlWatch(command):` gives each line of the command to `take`, in a thread."""

    def __init__(self, command: list[str]) -> None:
        super().__init__()
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    @abstractmethod
    def take(self, line: str) -> None:
        """Take one line without its end."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self.add_road(partial(self._follow, self._process))
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
        super().__exit__(kind, error, trace)
        self._process.wait()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        lines: Iterator[str] = process.stdout
        with process.stdout:
            for line in lines:
                self.take(line.strip())
        if not self.stop.is_set() and process.poll() != -9:
            raise RuntimeError(f"this watch ended: {self._command}")
