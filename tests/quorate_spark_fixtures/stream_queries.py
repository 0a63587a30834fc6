"""Queries that follow a stream until there is nothing left to read."""

import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

IMPORT_S_MAX = 120.0
_IMPORTS = "import pyspark.sql.streaming.python_streaming_source_runner, quorate_spark.data_source"


@cache
def import_once() -> None:
    """Import in a new process what the workers of a stream import; only the first call does.

    Spark gives a worker 10 s to import it and to connect, whatever its settings.  The first import
    after a while reads files that no cache has, which takes longer on a busy machine.
    """
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS],
        capture_output=True,
        text=True,
        timeout=IMPORT_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def run_to_end(query: "StreamingQuery") -> None:
    """Wait until it has read all, and end it; something that goes on writing keeps it from that."""
    try:
        query.processAllAvailable()
    finally:
        query.stop()
