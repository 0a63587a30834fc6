"""`quorate events` beside a real cluster: who follows it learns everything, restarts or not."""

import json
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import pytest

from quorate_cluster.fixtures import StartCluster
from quorate_cluster.processes import environment, python
from quorate_cluster.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

Told = dict[str, Any]
STEPS = ["MigrationStarted", "MigrationCaughtUp", "MigrationSwitched", "MigrationFinished"]


class Follower:
    """`quorate events --follow --json` as a process; what it printed, as it comes."""

    def __init__(self, api_port: int, *arguments: str) -> None:
        where = ("--server", f"127.0.0.1:{api_port}")
        self._process = subprocess.Popen(
            python("quorate_cli", "events", "--follow", "--json", *where, *arguments),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told: list[Told] = []
        self.errors = ""
        self._readers = [threading.Thread(target=each) for each in (self._read, self._read_errors)]

    def __enter__(self) -> Self:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
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

    def wait(self, is_so: Callable[[Told], bool], what: str, since: int = 0) -> Told:
        """Until something of the kind was told; it."""
        return wait_until(
            lambda: next((each for each in self.told[since:] if is_so(each)), None),
            what,
            60,
            lambda: (self.told[-5:], self.errors),
        ) or {}  # fmt: skip


def test_who_follows_sees_an_agent_join_step_by_step_and_the_state_after_a_restart(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(agents=3)
    cluster.apply_zone("z", partitions=16)
    cluster.wait_quiet("z")
    with Follower(cluster.operator.api_port) as follower:
        first = follower.wait(lambda told: told["reason"] == "State", "state at first")
        assert (first["zone"], first["state"]["phase"]) == ("z", "Available")

        cluster.add_agent()
        follower.wait(lambda told: told["reason"] == "ZoneRebalanced", "rebalanced zone")
        _assert_whole(follower.told[1:])
        assert any(
            told["reason"] == "NodeJoined" and "agent-4" in told["message"]
            for told in follower.told
        )

        count = len(follower.told)
        cluster.operator.terminate()
        cluster.operator.start()
        again = follower.wait(lambda told: told["reason"] == "State", "state again", count)
        assert again["sequence"] > follower.told[count - 1]["sequence"]
        assert "waiting for it" in follower.errors

        count = len(follower.told)
        cluster.wait_quiet("z")
        cluster.agents["agent-4"].kill()
        left = follower.wait(lambda told: told["reason"] == "NodeLeft", "loss of agent-4", count)
        assert "agent-4" in left["message"]
        assert left["kind"] == "Warning"


def _assert_whole(told: list[Told]) -> None:
    """Sequences without a gap; every migration from its beginning to its end."""
    sequences = [each["sequence"] for each in told]
    assert sequences == [*range(sequences[0], sequences[0] + len(sequences))]
    of_partition: dict[int, list[str]] = {}
    for each in told:
        if each["reason"].startswith("Migration"):
            of_partition.setdefault(each["partition"], []).append(each["reason"])
    assert of_partition
    for reasons in of_partition.values():
        assert reasons == STEPS * (len(reasons) // len(STEPS))
