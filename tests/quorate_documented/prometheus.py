"""A real Prometheus, and what it answers to the panels of the dashboards."""

import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from quorate_cluster.waiting import wait_until
from quorate_documented.dashboards import Asked

SCRAPE_S = 1
RATE_INTERVAL = f"{15 * SCRAPE_S}s"


class Series(NamedTuple):
    """One line of an answer: values at moments, as seconds since 1970."""

    labels: Mapping[str, str]
    values: list[tuple[float, float]]

    @property
    def last(self) -> float:
        return self.values[-1][1]


class Prometheus:
    """A process that runs, and scrapes every second what its configuration says."""

    def __init__(self, port: int, configuration: Path, process: subprocess.Popen[bytes]) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1"
        self._configuration = configuration
        self._process = process
        self._began = time.time()

    def scrape(self, configuration: str, rules: Path) -> None:
        """Take this configuration from now on."""
        self._configuration.write_text(_often(configuration, rules))
        self._process.send_signal(signal.SIGHUP)

    def is_ready(self) -> bool:
        """Whether it answers."""
        assert self._process.poll() is None, "prometheus has ended"
        try:
            return bool(self.now("vector(1)"))
        except URLError:
            return False

    def now(self, expr: str) -> list[Series]:
        """What `expr` is now."""
        return self._asked("query", query=expr)

    def since_the_beginning(self, expr: str) -> list[Series]:
        """What `expr` was in each second since this process began."""
        times = {"start": self._began, "end": time.time(), "step": SCRAPE_S}
        return self._asked("query_range", query=expr, **times)

    def answer(self, asked: Asked, variables: Mapping[str, str]) -> list[Series]:
        """What a panel gets."""
        expr = asked.with_values({**variables, "__rate_interval": RATE_INTERVAL})
        return self.now(expr) if asked.is_instant else self.since_the_beginning(expr)

    def _asked(self, what: str, **arguments: object) -> list[Series]:
        with urlopen(f"{self._address}/{what}?{urlencode(arguments)}", timeout=30) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return [
            Series(
                each["metric"],
                [
                    (moment, value)
                    for moment, text in each.get("values") or [each["value"]]
                    if not math.isnan(value := float(text))
                ],
            )
            for each in result
        ]


@contextmanager
def prometheus(folder: Path, port: int, configuration: str, rules: Path) -> Iterator[Prometheus]:
    """A Prometheus with its data in `folder`, which ends with the block."""
    file = folder / "prometheus.yaml"
    file.write_text(_often(configuration, rules))
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    process = subprocess.Popen(command, env={**os.environ, "GOMAXPROCS": "1"})
    try:
        running = Prometheus(port, file, process)
        wait_until(running.is_ready, "answer of prometheus")
        yield running
    finally:
        process.terminate()
        process.wait()


def _often(configuration: str, rules: Path) -> str:
    """The same with short intervals, and with rules for alerts."""
    whole = yaml.safe_load(configuration)
    whole["global"] = dict.fromkeys(("scrape_interval", "evaluation_interval"), f"{SCRAPE_S}s")
    whole["global"]["scrape_timeout"] = f"{SCRAPE_S}s"
    return yaml.safe_dump({**whole, "rule_files": [str(rules)]})
