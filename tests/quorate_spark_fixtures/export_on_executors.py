"""Exports a zone by executors that are processes of their own: `python -m … FILE`, with JSON in it.

Spark keeps files of such executors in SPARK_HOME, so that must be a folder of the test.
"""

import json
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from quorate_spark.exports.export_zone import export_zone
from quorate_spark.exports.target import Target
from quorate_spark.passes.export_tasks import ExportByTasks
from quorate_spark.reading.agent_link import read_cluster
from quorate_spark.reading.settle import ZoneCopies
from quorate_spark.settings import Settings

CLUSTER = "local-cluster[2,1,1024]"
"""Two executors with a core and 1024 MiB each."""


def main(told: str) -> None:
    """Export as told, and end without a word."""
    order = json.loads(told)
    settings = {
        "spark.master": CLUSTER,
        "spark.app.name": "quorate-export",
        "spark.executor.memory": "512m",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": order["folder"],
        "spark.driver.extraJavaOptions": "-XX:-UsePerfData -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:-UsePerfData -XX:TieredStopAtLevel=1",
    }
    conf = SparkConf(loadDefaults=False).setAll(sorted(settings.items()))
    access = read_cluster(order["cluster"], order["secret_file"])
    count, replicas = order["partitions"], order["replicas"]
    copies = ZoneCopies(order["zone"], tuple(order["agents"]), access, count, replicas)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    try:
        export_zone(
            Target(order["target"]),
            copies,
            "u",
            {},
            Settings(**order["settings"]),
            order["folder"],
            export=ExportByTasks(session),
        )
    finally:
        session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]).read_text())
