"""A validation that is told to stop leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import EllipsisType

import pytest

from quorate.protocol.messages import Message
from quorate.protocol.tool_messages import AskRows
from quorate_cluster.processes import environment
from quorate_cluster.waiting import wait_until
from quorate_spark_fixtures.scripted_agent import Answer
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]


@pytest.mark.parametrize("moment", ["Java starts", "rows are read"])
def test_no_process_and_no_file_is_left(tmp_path: Path, moment: str) -> None:
    asked: list[Message] = []
    work = tmp_path / "work"
    zone = ScriptedZone(replicas=1)

    def java() -> list[int]:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        threads = Path(f"/proc/{process.pid}/task").glob("*/children")
        return [int(pid) for file in (children, *threads) for pid in file.read_text().split()]

    def answer(message: Message) -> Answer | EllipsisType:
        if isinstance(message, AskRows):
            asked.append(message)
            return b""  # for ever
        return ...

    zone.agents[0].on_ask = answer
    with listening(zone):
        command = [sys.executable, "-P", "-m", "quorate_spark", "validate", "z"]
        command += ["--agents", ",".join(zone.copies.agents), "--work-dir", str(work)]
        process = subprocess.Popen(
            command,
            env={**environment(), "TMPDIR": str(tmp_path)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        wait_until(lambda: java() and (moment == "Java starts" or asked), moment, 120)
        children = java()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 128 + signal.SIGTERM
    assert errors == b""
    assert os.listdir(work) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
