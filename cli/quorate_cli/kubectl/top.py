"""`kubectl quorate top`: reads metrics of pods through the API server's proxy.

The view is that of `quorate top`.  Only GET is asked for, which needs the right to get
`pods/proxy`.
"""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from quorate.wire.storage_cluster import StorageCluster
from quorate_cli.kubectl import objects
from quorate_cli.kubectl.kube_api import Forbidden, KubeApi, Unreached, core_path
from quorate_cli.kubectl.report import OPERATOR
from quorate_cli.objects.load import Reading, Samples, parse
from quorate_cli.terminal.problem import Problem

PORT = 8080
"""Where managed agents and the chart's operator answer /metrics."""
ANSWER_S = 5.0
"""Longest wait for one pod: the API server itself would wait 30 s for a node that is gone."""
PODS_AT_ONCE = 16

Pods = list[tuple[str, str]]
"""Namespace and name of each."""


class PodMetrics:
    """The processes of one cluster; they are looked up with every reading, because pods change."""

    def __init__(self, api: KubeApi, cluster: StorageCluster, operator_namespace: str) -> None:
        self._api = api
        self._cluster = cluster
        self._operator_namespace = operator_namespace

    def read(self) -> Reading:
        """Read the metrics of all pods; what cannot be read is left out, with the reason.

        Raises Forbidden if the user has no right to read those of agents, Unreached without an API
        server."""
        place, name = self._cluster.metadata.namespace, self._cluster.metadata.name
        selector = f"{objects.LABEL_CLUSTER}={name},{objects.LABEL_AGENT}"
        by_agent = {
            str(pod["metadata"]["labels"][objects.LABEL_AGENT]): pod
            for pod in self._pods(place, selector)
        }
        problems = dict.fromkeys(
            objects.registrations(self._api, place, name).keys() - by_agent.keys(),
            "it has no pod: its metrics are at the address of its --admin",
        )
        running: dict[str, tuple[str, str]] = {}
        for agent, pod in by_agent.items():
            phase = pod.get("status", {}).get("phase")
            if phase == "Running":
                running[agent] = (place, str(pod["metadata"]["name"]))
            else:
                problems[agent] = f"its pod is {phase or 'not scheduled'}"
        operators, why = self._operator_pods()
        answers = self._ask_all([*running.values(), *operators])
        for pod_name in running.values():
            answer = answers[pod_name]
            if isinstance(answer, Forbidden):
                raise answer
        agents: dict[str, Samples] = {}
        for agent, pod_name in running.items():
            answer = answers[pod_name]
            if isinstance(answer, Problem):
                problems[agent] = str(answer)
            else:
                agents[agent] = answer
        operator, why_silent = _leading([answers[each] for each in operators])
        of_cluster = _of_cluster(operator, place, name)
        return Reading(time.monotonic(), agents, of_cluster, problems, why or why_silent)

    def _operator_pods(self) -> tuple[Pods, str]:
        """Return the operator's pods, and why there are none.

        They are in the namespace that was named, else in the cluster's, else in any."""
        place = self._operator_namespace or self._cluster.metadata.namespace
        try:
            found = self._pods(place, OPERATOR)
        except Forbidden as forbidden:
            return [], str(forbidden)
        if not found and not self._operator_namespace:
            try:
                found = self._pods("", OPERATOR)
            except Forbidden:
                return [], (
                    f"namespace {place} has no pod of the operator: name its namespace with"
                    " --operator-namespace"
                )
        names = [
            (str(pod["metadata"]["namespace"]), str(pod["metadata"]["name"]))
            for pod in found
            if pod.get("status", {}).get("phase") == "Running"
        ]
        where = f"namespace {place}" if found or self._operator_namespace else "any namespace"
        return names, "" if names else f"no pod of the operator runs in {where}"

    def _pods(self, namespace: str, selector: str) -> list[Mapping[str, Any]]:
        found: list[Any] = self._api.collection(
            core_path("pods", namespace), labelSelector=selector
        )
        return found

    def _ask_all(self, pods: Pods) -> Mapping[tuple[str, str], Samples | Problem]:
        with ThreadPoolExecutor(PODS_AT_ONCE) as threads:
            return dict(zip(pods, threads.map(self._ask, pods), strict=True))

    def _ask(self, pod: tuple[str, str]) -> Samples | Problem:
        namespace, name = pod
        path = f"{core_path('pods', namespace, f'{name}:{PORT}')}/proxy/metrics"
        try:
            return parse(self._api.text_within(path, ANSWER_S).decode())
        except Unreached:
            return Problem(f"pod {name} does not answer within {ANSWER_S:.0f} s")
        except Problem as problem:
            return problem
        except ValueError as error:
            return Problem(f"pod {name} answers something else than metrics: {error}")


def _leading(answers: list[Samples | Problem]) -> tuple[Samples, str]:
    """Return the metrics of the operator that leads, and why there are none."""
    silent: list[str] = []
    for answer in answers:
        if isinstance(answer, Problem):
            silent.append(str(answer))
        elif any(answer.get("quorate_operator_is_master", {}).values()):
            return answer, ""
    none_leads = "no operator leads" if answers else ""
    return {}, silent[0] if silent else none_leads


def _of_cluster(samples: Samples, namespace: str, cluster: str) -> Samples:
    """Return the series about one cluster: an operator may lead others, with zones alike."""
    about = {("namespace", namespace), ("cluster", cluster)}
    return {
        name: {labels: value for labels, value in series.items() if labels >= about}
        for name, series in samples.items()
    }
