"""How many of the agents' pods were away at the same moment while a test did something."""

import subprocess
from collections.abc import Iterator
from functools import partial
from types import TracebackType
from typing import Self

from quorate_cluster.background import Background
from quorate_nodes.installed import AGENTS, NAMESPACE, Installed, is_ready

_FACTS = (
    "{.metadata.name}",
    "{.metadata.deletionTimestamp}",
    '{.status.conditions[?(@.type=="Ready")].status}',
)


class PodWatch(Background):
    """`with PodWatch(installed) as watch:`: a watch of the API server's runs meanwhile.

    `away_max`: how many pods at most were deleted or not ready at once, by what kubelets told.
    `seen`: one line for each change, `name|deleted at|ready`.
    """

    def __init__(self, installed: Installed) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.away_max = 0
        self._ready = {pod["metadata"]["name"]: is_ready(pod) for pod in installed.pods()}
        command = installed.nodes.plane.kubectl_command(
            "get", "pods", f"--namespace={NAMESPACE}", AGENTS, "--watch"
        )
        command.append(f'--output=jsonpath={"|".join(_FACTS)}{{"\\n"}}')
        self._command = command
        self._process: subprocess.Popen[str] | None = None

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
                self.seen.append(line.strip())
                name, deleted, ready = line.strip().split("|")
                self._ready[name] = ready == "True" and not deleted
                self.away_max = max(self.away_max, [*self._ready.values()].count(False))
        if not self.stop.is_set() and process.poll() != -9:
            raise RuntimeError(f"the watch of pods ended: {self.seen[-1:]}")
