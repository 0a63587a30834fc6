"""The Prometheus configuration that scrapes a development cluster."""

from typing import Any

import yaml

from quorate_cli.dev.process_states import ProcessState, process_states
from quorate_cli.processes.cluster_folder import OPERATOR, ClusterFolder

NAMESPACE = "dev"
"""Links of the dashboards need a value for this label, as the chart's PodMonitors give it."""
_INTERVAL = "15s"  # what the alerts are made for
_HEAD = """# For Prometheus (--config.file). A process that is started again may have another port.
# For alerts, add charts/quorate/files/alerts.yaml to rule_files.
"""


def scrape_configuration(folder: ClusterFolder) -> str:
    """Return a configuration with a target for each process that runs."""
    running = [state for state in process_states(folder) if state.pid is not None]
    operators = [state for state in running if state.name == OPERATOR]
    agents = [state for state in running if state.name != OPERATOR]
    cluster = folder.read().cluster
    jobs = [
        _job("quorate-operator", operators, "API"),
        _job("quorate-agents", agents, "admin", cluster=cluster),
    ]
    whole = {
        "global": {"scrape_interval": _INTERVAL, "evaluation_interval": _INTERVAL},
        "scrape_configs": jobs,
    }
    return _HEAD + yaml.safe_dump(whole, sort_keys=False)


def _job(name: str, states: list[ProcessState], port: str, cluster: str = "") -> dict[str, Any]:
    targets = []
    for state in states:
        if port in state.listens:
            labels = {"namespace": NAMESPACE, "instance": state.name}
            if cluster:
                labels |= {"cluster": cluster, "agent": state.name}
            targets.append({"targets": [state.listens[port]], "labels": labels})
    return {"job_name": name, "static_configs": targets}
