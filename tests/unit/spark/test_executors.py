"""Spark's settings to make executors, and the command line of one."""

import base64
import json
from pathlib import Path

import pytest

from quorate.wire.jobs.executors import EXECUTOR_FOLDER, Executors, encode_executors
from quorate_link.secret import ClusterSecret, make_secret
from quorate_spark.__main__ import main
from quorate_spark.passes import executor_process, spark_session
from quorate_spark.passes.executor_process import command_of
from quorate_spark.passes.executors import ExecutorsRefused, Led, led_executors
from quorate_spark.passes.spark_session import SparkMissing, own_spark

GIB = 1 << 30
TEMPLATE = {"kind": "Pod", "spec": {"containers": [{"name": "executor"}]}}


@pytest.fixture
def secret(tmp_path: Path) -> ClusterSecret:
    return make_secret(tmp_path / "secret.json")


def environment(executors: Executors | None = None, **more: str) -> dict[str, str]:
    told = executors or Executors(2, 3, "500m", 4 * GIB, "quorate-spark:1", TEMPLATE)
    return {
        "QUORATE_EXECUTORS": encode_executors(told),
        "QUORATE_POD": "nightly-validation-x7k2p",
        "QUORATE_NAMESPACE": "shop",
        "QUORATE_ADDRESS": "10.0.0.7",
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        **more,
    }


def led(folder: Path, **more: str) -> Led:
    found = led_executors(str(folder / "secret.json"), environment(**more))
    assert found is not None
    return found


def test_without_the_operators_word_this_process_does_all() -> None:
    assert led_executors("secret.json", {}) is None


@pytest.mark.parametrize("name", ["QUORATE_POD", "QUORATE_ADDRESS", "KUBERNETES_SERVICE_HOST"])
def test_a_process_that_is_no_pod_of_the_operator_leads_none(name: str) -> None:
    told = environment()
    del told[name]

    with pytest.raises(ExecutorsRefused, match=f"QUORATE_EXECUTORS is set and {name} is not"):
        led_executors("secret.json", told)
    with pytest.raises(ExecutorsRefused, match="not executors as this version reads them"):
        led_executors("secret.json", environment(QUORATE_EXECUTORS="{"))


def test_executors_connect_to_the_address_of_the_pod_at_fixed_ports(
    tmp_path: Path, secret: ClusterSecret
) -> None:
    made = led(tmp_path).configuration(tmp_path)

    assert made["spark.master"] == "k8s://https://10.96.0.1:443"
    assert made["spark.driver.host"] == made["spark.driver.bindAddress"] == "10.0.0.7"
    assert (made["spark.driver.port"], made["spark.blockManager.port"]) == ("7078", "7079")
    assert made["spark.kubernetes.driver.pod.name"] == "nightly-validation-x7k2p"
    assert made["spark.kubernetes.namespace"] == "shop"
    assert (made["spark.executor.instances"], made["spark.executor.cores"]) == ("2", "3")
    assert made["spark.kubernetes.executor.request.cores"] == "500m"
    assert made["spark.executor.maxNumFailures"] == "4"
    assert made["spark.executor.failuresValidityInterval"] == "1h"
    template = Path(made["spark.kubernetes.executor.podTemplateFile"])
    assert json.loads(template.read_text()) == TEMPLATE


def test_addresses_of_ipv6_are_in_brackets(tmp_path: Path, secret: ClusterSecret) -> None:
    found = led(tmp_path, QUORATE_ADDRESS="fd00::7", KUBERNETES_SERVICE_HOST="fd00::1")

    made = found.configuration(tmp_path)
    assert made["spark.driver.host"] == "[fd00::7]"
    assert made["spark.master"] == "k8s://https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("gib", "heap", "rest"), [(1, 512, 512), (2, 1024, 1024), (16, 2048, 14336)]
)
def test_most_of_the_memory_is_pythons(
    tmp_path: Path, secret: ClusterSecret, gib: int, heap: int, rest: int
) -> None:
    told = encode_executors(Executors(1, 1, "1", gib * GIB, "image", TEMPLATE))

    made = led(tmp_path, QUORATE_EXECUTORS=told).configuration(tmp_path)

    assert made["spark.executor.memory"] == f"{heap}m"
    assert made["spark.executor.memoryOverhead"] == f"{rest}m"


def test_executors_prove_that_they_are_of_this_run_and_nothing_shows_how(
    tmp_path: Path, secret: ClusterSecret
) -> None:
    first, second = led(tmp_path), led(tmp_path)

    made = first.configuration(tmp_path)

    assert made["spark.authenticate"] == made["spark.network.crypto.enabled"] == "true"
    assert made["spark.network.crypto.saslFallback"] == "false"  # else a peer may choose less
    assert made["spark.network.crypto.authEngineVersion"] == "2"
    assert made["spark.network.crypto.cipher"] == "AES/GCM/NoPadding"  # CTR shows no changes
    file = Path(made["spark.authenticate.secret.driver.file"])
    proof = file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    assert proof == secret.spark(first.application) != secret.spark(second.application)
    shown = json.dumps(made)
    keys = (secret.key, *secret.keys().by_role.values())
    for each in (proof, *(key.hex() for key in keys), *map(_base64, keys)):
        assert each not in shown
    assert proof not in {key.hex() for key in keys}


def _base64(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_names_of_executors_fit(tmp_path: Path, secret: ClusterSecret) -> None:
    found = led(tmp_path, QUORATE_POD=f"{'a' * 50}-validation-x7k2p")

    assert len(found.application) <= 47
    assert found.configuration(tmp_path)["spark.app.id"] == found.application


def test_an_executor_is_what_spark_tells_it_to_be() -> None:
    told = {
        "SPARK_JAVA_OPT_10": "-Dlast",
        "SPARK_JAVA_OPT_2": "-Dsecond=a b",
        "SPARK_JAVA_OPT_0": "-Dfirst",
        "SPARK_DRIVER_URL": "spark://driver",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "3",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "nightly",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "nightly-exec-7",
    }

    java, *words = command_of(told, "/java", f"{EXECUTOR_FOLDER}:/jars/*")

    assert java == "/java"
    assert words[:3] == ["-Dfirst", "-Dsecond=a b", "-Dlast"]
    assert words[3] == "-Dspark.master=k8s://"
    assert words[4] == f"-Dspark.authenticate.secret.file={EXECUTOR_FOLDER}/spark-secret"
    assert words[5:9] == ["-Xms512m", "-Xmx512m", "-cp", f"{EXECUTOR_FOLDER}:/jars/*"]
    assert words[9].endswith(".KubernetesExecutorBackend")
    pairs = dict(zip(words[10::2], words[11::2], strict=True))
    assert pairs["--driver-url"] == "spark://driver"
    assert (pairs["--executor-id"], pairs["--podName"]) == ("7", "nightly-exec-7")
    assert (pairs["--cores"], pairs["--hostname"]) == ("3", "10.0.0.9")


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("secret", "secret.json cannot be read"),
        ("SPARK_APPLICATION_ID", "SPARK_APPLICATION_ID is not set: Spark starts it"),
        ("work", "No such file or directory"),
        ("java", "there is no java on PATH"),
        ("SPARK_EXECUTOR_MEMORY", "SPARK_EXECUTOR_MEMORY is not set"),
    ],
)
def test_why_a_process_cannot_be_an_executor_is_a_sentence(
    tmp_path: Path,
    secret: ClusterSecret,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    lacking: str,
    said: str,
) -> None:
    folder = tmp_path / "work"
    if lacking != "work":
        folder.mkdir()
    if lacking == "secret":
        (tmp_path / "secret.json").unlink()
    monkeypatch.setattr(executor_process, "FOLDER", folder)
    monkeypatch.setattr(executor_process, "EXECUTOR_SECRET", tmp_path / "secret.json")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if lacking == "java":
        monkeypatch.setenv("PATH", "")
    else:
        monkeypatch.setattr(executor_process, "find_java", lambda: "/java")
    for name in ("SPARK_APPLICATION_ID", "SPARK_EXECUTOR_MEMORY"):
        monkeypatch.delenv(name, raising=False)
        if name != lacking:
            monkeypatch.setenv(name, "1")

    assert main(["executor"]) == 2

    told = capsys.readouterr().err
    assert told.startswith("this is no executor: ")
    assert said in told
    assert "Traceback" not in told


def test_no_executors_are_led_by_a_user_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, led: Led
) -> None:
    """The error of their Java would be a stack.  There need be no Java here."""
    monkeypatch.setattr("os.getuid", lambda: 1_000_680_000)
    monkeypatch.setattr(spark_session, "check_spark", lambda: None)

    with (
        pytest.raises(SparkMissing, match="user 1000680000 has no entry in /etc/passwd: run them"),
        own_spark(tmp_path, led),
    ):
        pass
