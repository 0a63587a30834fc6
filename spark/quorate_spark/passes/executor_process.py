"""The process of an executor: `quorate-spark executor`, which becomes Spark's own in Java.

Spark names that argument, and tells all others in the environment.  It is what the shell script of
Spark's own images does, which no Python package has.
"""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from quorate.wire.jobs.executors import EXECUTOR_SECRET
from quorate_link.secret import read_secret, write_private
from quorate_spark.passes.executors import FOLDER, SECRET_FILE
from quorate_spark.passes.spark_session import LOG_SETTINGS, check_user, find_java

NAME = "executor"
_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = "SPARK_JAVA_OPT_"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Arguments of Spark's process, and the variables that have them."""


def become_executor() -> NoReturn:
    """Replace this process by Spark's executor.  Raises SecretRefused, SparkMissing, OSError."""
    check_user()
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    jars = Path(found.origin).parent / "jars"
    secret = read_secret(Path(EXECUTOR_SECRET)).spark(os.environ["SPARK_APPLICATION_ID"])
    write_private(FOLDER / SECRET_FILE, secret)
    (FOLDER / "log4j2.properties").write_text(LOG_SETTINGS)
    command = command_of(os.environ, find_java(), f"{FOLDER}:{jars}/*")
    os.execv(command[0], command)


def command_of(environment: Mapping[str, str], java: str, class_path: str) -> list[str]:
    """Return Java's command line, as the environment tells it."""
    options = sorted(
        (int(name.removeprefix(_OPTION)), value)
        for name, value in environment.items()
        if name.startswith(_OPTION)
    )
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    arguments = ((option, environment[name]) for option, name in _ARGUMENTS.items())
    return [
        java,
        *(value for _, value in options),
        # It connects to the driver for its settings, this one included.  Spark takes a file only
        # where it is told that it is on Kubernetes; the driver tells the whole URL afterwards.
        "-Dspark.master=k8s://",
        f"-Dspark.authenticate.secret.file={FOLDER / SECRET_FILE}",
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        class_path,
        _CLASS,
        *(word for pair in arguments for word in pair),
    ]
