"""`quorate events` beside a real cluster: who follows it learns everything, restarts or not."""

import json
import subprocess
from typing import Any

import pytest

from quorate_cluster.fixtures import StartCluster
from quorate_cluster.operator_api import OperatorApi
from quorate_cluster.processes import environment, python
from quorate_cluster.told_events import Follower, assert_whole

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


class Command(Follower):
    """`quorate events --follow --json` as a process."""

    def __init__(self, api: OperatorApi, api_port: int, *arguments: str) -> None:
        super().__init__()
        where = ("--server", f"127.0.0.1:{api_port}")
        self._process = subprocess.Popen(
            python("quorate_cli", "events", "--follow", "--json", *where, *arguments),
            env={**environment(), "QUORATE_TOKEN_FILE": str(api.token_file)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.add_road(self._read)
        self.add_road(self._read_errors)

    def __exit__(self, *failure: Any) -> None:
        self._process.kill()
        self._process.wait()
        super().__exit__(*failure)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.told.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors += line


def test_who_follows_sees_an_agent_join_step_by_step_and_the_state_after_a_restart(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    cluster.wait_quiet("z")
    with Command(cluster.api, cluster.operator.api_port) as follower:
        first = follower.wait("State")
        assert (first["zone"], first["state"]["phase"]) == ("z", "Available")

        cluster.add_agent()
        follower.wait("ZoneRebalanced")
        assert_whole(follower.told)
        assert any(
            told["reason"] == "NodeJoined" and "agent-4" in told["message"]
            for told in follower.told
        )

        count = len(follower.told)
        cluster.operator.terminate()
        cluster.operator.start()
        again = follower.wait("State", count)
        assert again["sequence"] > follower.told[count - 1]["sequence"]
        assert "retrying" in follower.errors

        count = len(follower.told)
        cluster.wait_quiet("z")
        cluster.agents["agent-4"].kill()
        left = follower.wait("NodeLeft", count)
        assert "agent-4" in left["message"]
        assert left["kind"] == "Warning"
