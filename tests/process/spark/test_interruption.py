"""A validation that is told to stop leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import EllipsisType

import pytest

from quorate.protocol.messages.message import Message
from quorate.protocol.messages.tools import AskColumns
from quorate_cluster.processes import environment
from quorate_cluster.waiting import wait_until
from quorate_spark_fixtures.scripted_agent import Answer
from quorate_spark_fixtures.scripted_zone import ScriptedZone, listening

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(300)]


OUT_OF_STEP = """\
import os, sys
if "quorate_spark" in sys.orig_argv:
    import time
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.traceback_utils import SCCallSiteSync

    def end(self, kind, error, trace):
        if kind is not None:
            raise KeyError("p")

    SCCallSiteSync.__exit__ = end
    SparkSession.stop = lambda self: time.sleep(600)
"""
"""Planted: py4j takes the rest of an answer for the next, and waits for one that never comes."""


@pytest.mark.parametrize("moment", ["Java starts", "rows are read", "py4j is out of step"])
def test_no_process_and_no_file_is_left(tmp_path: Path, moment: str) -> None:
    if moment == "py4j is out of step":
        (tmp_path / "sitecustomize.py").write_text(OUT_OF_STEP)
    asked: list[Message] = []
    work = tmp_path / "work"
    zone = ScriptedZone(replicas=1)

    def java() -> list[int]:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        threads = Path(f"/proc/{process.pid}/task").glob("*/children")
        return [int(pid) for file in (children, *threads) for pid in file.read_text().split()]

    def answer(message: Message) -> Answer | EllipsisType:
        if isinstance(message, AskColumns):
            asked.append(message)
            return b""  # for ever
        return ...

    zone.agents[0].on_ask = answer
    with listening(zone):
        command = [sys.executable, "-P", "-m", "quorate_spark", "validate", "z"]
        command += ["--agents", ",".join(zone.copies.agents), "--work-dir", str(work)]
        command += ["--cluster", "c", "--secret-file", zone.secret_file]
        variables = environment()
        path = os.pathsep.join([str(tmp_path), variables.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            command,
            env={**variables, "TMPDIR": str(tmp_path), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        children: list[int] = []
        try:
            wait_until(lambda: java() and (moment == "Java starts" or asked), moment, 120)
            children = java()
            process.send_signal(signal.SIGTERM)
            said, errors = process.communicate(timeout=60)
        except BaseException:
            for pid in (process.pid, *children):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.communicate()
            raise

    assert process.returncode == 128 + signal.SIGTERM
    assert (said, errors) == (b"", b"")
    assert os.listdir(work) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
