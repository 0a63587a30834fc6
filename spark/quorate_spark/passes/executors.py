"""Executors of a run on Kubernetes: pods that this process has Spark make, and that it leads.

The operator tells in the environment which they are (`quorate.wire.jobs.executors`).  Spark makes
them with the rights of this pod, which owns them: they go with it at the latest.

They know each other by a secret that is derived from the cluster's.  Each process derives it from
the mounted file: it is in no argument, no variable and no object.
"""

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from quorate.facts.errors import QuorateError, WireError
from quorate.wire.jobs.executors import (
    ADDRESS_VARIABLE,
    BLOCKS_PORT,
    DRIVER_PORT,
    EXECUTOR_CONTAINER,
    EXECUTOR_FOLDER,
    EXECUTORS_VARIABLE,
    NAMESPACE_VARIABLE,
    POD_VARIABLE,
    Executors,
    decode_executors,
)
from quorate_link.secret import read_secret, write_private

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FOLDER = Path(EXECUTOR_FOLDER)
"""The folder of an executor."""
SECRET_FILE = "spark-secret"
HEAP_SHARE = 2
"""Java gets this part of an executor's memory; the rows are in Python's."""
HEAP_MIN, HEAP_MAX = 512, 2048
"""MiB.  Spark refuses less than 450 MiB; its own work takes little."""
_MIB = 1 << 20
_NAME_MAX = 36
"""Spark takes 47 characters for what the names of executors begin with."""


class ExecutorsRefused(QuorateError):
    """Executors cannot be made here; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Led:
    """Executors that this process leads.

    `application`: its name for Spark.  `pod`, `namespace`, `address`: of this process.  `api`: the
    URL of the API server.  `secret_file`: of the cluster.
    """

    executors: Executors
    application: str
    pod: str
    namespace: str
    address: str
    api: str
    secret_file: Path

    def configuration(self, folder: Path) -> dict[str, str]:
        """Return settings of Spark, whose files are written to `folder`."""
        template, secret = folder / "executor.json", folder / SECRET_FILE
        template.write_bytes(msgspec.json.encode(self.executors.template))
        write_private(secret, read_secret(self.secret_file).spark(self.application))
        memory = self.executors.memory // _MIB
        heap = min(max(memory // HEAP_SHARE, HEAP_MIN), HEAP_MAX)
        kubernetes = {
            "namespace": self.namespace,
            "driver.pod.name": self.pod,
            "authenticate.caCertFile": str(ACCOUNT / "ca.crt"),
            "authenticate.oauthTokenFile": str(ACCOUNT / "token"),
            "container.image": self.executors.image,
            "executor.podTemplateFile": str(template),
            "executor.podTemplateContainerName": EXECUTOR_CONTAINER,
            "executor.podNamePrefix": self.application,
            "executor.request.cores": self.executors.cpu,
            # Spark then needs no rights but those on pods.
            "executor.disableConfigMap": "true",
            "driver.service.deleteOnTermination": "false",
            "driver.ownPersistentVolumeClaim": "false",
            "driver.reusePersistentVolumeClaim": "false",
        }
        return {
            "spark.master": f"k8s://{self.api}",
            "spark.app.id": self.application,
            # A wildcard would send executors to 0.0.0.0.
            "spark.driver.bindAddress": self.address,
            "spark.driver.host": self.address,
            "spark.driver.port": str(DRIVER_PORT),
            "spark.blockManager.port": str(BLOCKS_PORT),
            "spark.executor.instances": str(self.executors.instances),
            "spark.executor.maxNumFailures": str(self.executors.failures_max),
            "spark.executor.failuresValidityInterval": "1h",
            "spark.executor.cores": str(self.executors.cores),
            "spark.executor.memory": f"{heap}m",
            "spark.executor.memoryOverhead": f"{memory - heap}m",
            "spark.executor.extraJavaOptions": (
                f"-Djava.io.tmpdir={FOLDER} -XX:-UsePerfData -XX:TieredStopAtLevel=1"
            ),
            # Tasks are code: no other process may send some.
            "spark.authenticate": "true",
            "spark.network.crypto.enabled": "true",
            "spark.network.crypto.saslFallback": "false",
            "spark.network.crypto.authEngineVersion": "2",
            "spark.network.crypto.cipher": "AES/GCM/NoPadding",
            "spark.authenticate.secret.driver.file": str(secret),
            "spark.authenticate.secret.executor.file": str(FOLDER / SECRET_FILE),
            **{f"spark.kubernetes.{name}": value for name, value in kubernetes.items()},
        }


def led_executors(secret_file: str, environment: Mapping[str, str] = os.environ) -> Led | None:
    """Return the executors that the environment tells; None: this process does all itself.

    Raises ExecutorsRefused.
    """
    told = environment.get(EXECUTORS_VARIABLE)
    if not told:
        return None
    try:
        executors = decode_executors(told)
        pod, host = environment[POD_VARIABLE], environment["KUBERNETES_SERVICE_HOST"]
        begin = re.sub("[^a-z0-9-]", "-", pod)[:_NAME_MAX].strip("-")
        return Led(
            executors,
            f"{begin}-{secrets.token_hex(4)}",
            pod,
            environment[NAMESPACE_VARIABLE],
            _in_brackets(environment[ADDRESS_VARIABLE]),
            f"https://{_in_brackets(host)}:{environment['KUBERNETES_SERVICE_PORT']}",
            Path(secret_file),
        )
    except WireError as error:
        raise ExecutorsRefused(f"{EXECUTORS_VARIABLE}: {error}") from error
    except KeyError as error:
        raise ExecutorsRefused(
            f"{EXECUTORS_VARIABLE} is set and {error.args[0]} is not: is this a pod of a Job that"
            " the operator made?"
        ) from error


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
