"""How many of the agents' pods were away at the same moment while a test did something."""

from quorate_nodes.release.installed import AGENTS, NAMESPACE, Installed, is_ready
from quorate_nodes.watching.kubectl_watch import KubectlWatch

_FACTS = (
    "{.metadata.name}",
    "{.metadata.deletionTimestamp}",
    '{.status.conditions[?(@.type=="Ready")].status}',
    "{.status.containerStatuses[*].state.terminated.exitCode}",
)


class PodWatch(KubectlWatch):
    """`with PodWatch(installed) as watch:`: a watch of the API server's runs meanwhile.

    `away_max`: how many pods at most were deleted or not ready at once, by what kubelets told.
    `exit_codes`: with which codes the agent of each pod has ended, by the pod's name.
    `seen`: one line for each change, `name|deleted at|ready|exit code`.
    """

    def __init__(self, installed: Installed) -> None:
        command = installed.nodes.plane.kubectl_command(
            "get", "pods", f"--namespace={NAMESPACE}", AGENTS, "--watch"
        )
        command.append(f'--output=jsonpath={"|".join(_FACTS)}{{"\\n"}}')
        super().__init__(command)
        self.seen: list[str] = []
        self.away_max = 0
        self.exit_codes: dict[str, set[str]] = {}
        self._ready = {pod["metadata"]["name"]: is_ready(pod) for pod in installed.pods()}

    def take(self, line: str) -> None:
        """Note a pod as it is now."""
        self.seen.append(line)
        name, deleted, ready, exit_code = line.split("|")
        self._ready[name] = ready == "True" and not deleted
        self.away_max = max(self.away_max, [*self._ready.values()].count(False))
        if exit_code:
            self.exit_codes.setdefault(name, set()).add(exit_code)
