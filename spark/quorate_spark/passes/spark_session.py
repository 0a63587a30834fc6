"""A Spark of our own, quiet, with all its files in one folder.  A local one is on loopback only.

It needs Java 17 or later and the packages pyspark and pyarrow; SparkMissing says which is missing
and how to get it.  Output of Java and Spark goes to `spark.log` in the folder.
"""

import contextlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import quorate
import quorate_spark
from quorate.facts.errors import QuorateError
from quorate_spark.passes.executors import Led

if TYPE_CHECKING:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

JAVA_MIN = 17
STOP_TIMEOUT_S = 20.0

T = TypeVar("T")

LOG_SETTINGS = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} %p %c: %m%n
"""


class SparkMissing(QuorateError):
    """Spark cannot run here; the message says what is missing, and the way out."""


def check_spark() -> None:
    """Raise SparkMissing unless Java and the Python packages can be used."""
    for package in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise SparkMissing(
                f"reading all rows needs the Python package {package}, which is not installed: pip"
                " install 'quorate[spark]'"
            )
    java = find_java()
    version = _java_version(java)
    if version is None or version < JAVA_MIN:
        raise SparkMissing(
            f"reading all rows needs Java {JAVA_MIN} or later for Spark, and {java} is"
            f" {'not one that answers' if version is None else f'Java {version}'}: install it (on"
            f" Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless) or set JAVA_HOME"
        )


def check_user() -> None:
    """Raise SparkMissing unless the user of this process has a name: Java fails without, and only a
    local Spark can be told one (`_name_user`)."""
    if not _has_name():
        raise SparkMissing(
            f"runs with executors need a user with a name, for Java, and user {os.getuid()} has no"
            " entry in /etc/passwd: run them as a user that has one, 65532 in Quorate's image, or"
            " where the container runtime makes one, as CRI-O does"
        )


def _has_name() -> bool:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


@contextlib.contextmanager
def own_spark(folder: Path, led: Led | None = None) -> Iterator["SparkSession"]:
    """Yield a session on all cores of this machine; its Java process has ended afterwards.

    `folder` must exist and be used by this session only; the caller removes it.  `led`: tasks are
    run by these executors instead.
    """
    check_spark()
    if led is not None:
        check_user()
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    (folder / "conf").mkdir()
    (folder / "tmp").mkdir()
    (folder / "conf" / "log4j2.properties").write_text(LOG_SETTINGS)
    settings = _configuration(folder)
    if led is not None:
        settings |= led.configuration(folder)
    conf = SparkConf(loadDefaults=False).setAll(sorted(settings.items()))
    address = "127.0.0.1" if led is None else led.address
    with (folder / "spark.log").open("wb") as log, _environment(folder, address):
        try:
            gateway = _start_java(conf, log)
        except PySparkException as error:
            raise SparkMissing(f"Java started and ended at once: {log_tail(folder)}") from error
        try:
            if not _has_name():
                _name_user(gateway)
            with _own_interrupts():
                session = SparkSession(SparkContext(gateway=gateway, conf=conf))
        except Py4JError as error:
            cause = java_words(error)  # only a Java that runs can tell
            _kill_java(gateway)
            raise SparkMissing(_not_begun(folder, led, cause)) from error
        except BaseException:
            _kill_java(gateway)
            raise
    try:
        yield session
    except BaseException as error:
        if _was_interrupted(error):
            # Spark is not asked to stop: py4j would take the rest of the interrupted answer for the
            # next one, or wait until the interrupted question is answered.
            _stop_listening(session)
            _kill_java(gateway)
        else:
            _stop(session, gateway)
        raise
    else:
        _stop(session, gateway)


def _name_user(gateway: Any) -> None:
    """Tell Spark's Java a name for its user: it finds none where /etc/passwd has no entry."""
    users = gateway.jvm.org.apache.hadoop.security.UserGroupInformation
    users.setLoginUser(users.createRemoteUser("quorate"))


def java_words(error: "Py4JError") -> str:
    """Return what Java says of an exception of its own, in a line; empty: it has ended."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return ""
    try:
        lines = str(error.java_exception.toString()).strip().splitlines()
    except (Py4JError, OSError):
        return ""
    return lines[0].strip() if lines else ""


def _not_begun(folder: Path, led: Led | None, cause: str) -> str:
    """Return the sentence of a Spark that has given up before it could run tasks."""
    if led is None:
        return f"Spark started and gave up: {cause or log_tail(folder)}"
    return (
        f"Spark's executors could not be made, or ended too often: {cause or log_tail(folder)}."
        " Logs of"
        f" those left may say why: kubectl logs --namespace {led.namespace} --selector"
        f" spark-app-selector={led.application}"
    )


def _was_interrupted(error: BaseException) -> bool:
    """Return whether a signal's exception is behind `error`: it causes others on its way out."""
    seen: BaseException | None = error
    while seen is not None and isinstance(seen, Exception):
        seen = seen.__context__
    return seen is not None


def _stop_listening(session: "SparkSession") -> None:
    """End the server for Java's accumulator updates: it would print that Java has gone."""
    server: Any = getattr(session.sparkContext, "_accumulatorServer", None)  # pyspark's own
    if server is not None:
        with contextlib.suppress(OSError):
            server.shutdown()


def _stop(session: "SparkSession", gateway: Any) -> None:
    from py4j.protocol import Py4JError

    try:
        with contextlib.suppress(Py4JError, OSError):  # Java may have ended by itself
            session.stop()
    finally:
        _end_java(gateway)


def log_tail(folder: Path, lines: int = 3) -> str:
    """Return the last lines that Java or Spark printed."""
    try:
        text = (folder / "spark.log").read_text(errors="replace")
    except OSError:
        return "nothing was logged"
    return " / ".join(line.strip() for line in text.splitlines()[-lines:]) or "nothing was logged"


def find_java() -> str:
    """Return the Java that Spark is to use.  Raises SparkMissing."""
    home = os.environ.get("JAVA_HOME")
    if home:
        # Spark would use this one and no other, so we do the same.
        return os.path.join(home, "bin", "java")
    found = shutil.which("java")
    if found is None:
        raise SparkMissing(
            f"reading all rows needs Java {JAVA_MIN} or later for Spark, and there is no java on"
            f" PATH: install it (on Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless) or set"
            " JAVA_HOME"
        )
    return found


def _java_version(java: str) -> int | None:
    """Return the major version that `java` reports; None if it does not run."""
    ask = partial(
        subprocess.run, [java, "-version"], capture_output=True, text=True, timeout=30, check=True
    )
    try:
        answer = _undisturbed(ask)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found.group(1)) if found else None


def _configuration(folder: Path) -> dict[str, str]:
    cores = os.cpu_count() or 1
    return {
        "spark.master": "local[*]",
        "spark.app.name": "quorate-validate",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Else it tells up to ten seconds late which tasks run (end_tasks).
        "spark.ui.liveUpdate.period": "0",
        "spark.local.dir": str(folder / "tmp"),
        "spark.jars.ivy": str(folder / "tmp" / "ivy"),  # else in the user's home, if it has one
        "spark.sql.warehouse.dir": str(folder / "tmp" / "warehouse"),
        # A run is short: optimizing for long ones costs half of its CPU time.
        "spark.driver.extraJavaOptions": (
            f"-Djava.io.tmpdir={folder / 'tmp'} -XX:-UsePerfData -XX:TieredStopAtLevel=1"
        ),
        "spark.sql.shuffle.partitions": str(max(2 * cores, 4)),
    }


@contextlib.contextmanager
def _environment(folder: Path, address: str) -> Iterator[None]:
    """Set the environment variables that Java and its workers inherit; restore them afterwards."""
    roots = [str(Path(package.__path__[0]).parent) for package in (quorate, quorate_spark)]
    changes: dict[str, str | None] = {
        # Workers must import these very packages, even if nothing is installed.
        "PYTHONPATH": os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": None,
        "PYSPARK_GATEWAY_PORT": None,
        # Another Spark on this machine has other jars and other defaults.
        "SPARK_HOME": None,
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_DIRS": str(folder / "tmp"),
        "SPARK_LOCAL_IP": address,
        "TMPDIR": str(folder / "tmp"),
    }
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _start_java(conf: "SparkConf", log: BinaryIO) -> object:
    """Start Java and return its gateway.  An interrupt takes effect when Java has ended again."""
    from pyspark.java_gateway import launch_gateway

    started: list[object] = []
    start = partial(launch_gateway, conf, {"stdout": log, "stderr": log})
    try:
        _undisturbed(lambda: started.append(start()))
    except BaseException:
        for gateway in started:
            _end_java(gateway)
        raise
    return started[0]


def _undisturbed(work: Callable[[], T]) -> T:
    """Run `work` undisturbed by signals; return or raise its result.

    It runs in its own thread, so that a signal's exception comes when all of it is done.  Between
    the start of a process and our knowing of it, an exception would leave the process behind with a
    folder to write into.
    """
    with ThreadPoolExecutor(1) as threads:
        # An interrupt while the thread starts would leave it unawaited, so it starts before `work`.
        threads.submit(int).result()
        return threads.submit(work).result()


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep our Ctrl-C handler: pyspark's queries Java in the middle of another query."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _kill_java(gateway: Any) -> None:
    """Kill the Java process without asking it; its files are in our own folder."""
    gateway.proc.kill()
    gateway.proc.wait()
    with contextlib.suppress(Exception):  # py4j may raise anything about an ended connection
        _end_java(gateway)


def _end_java(gateway: Any) -> None:
    """End the Java process behind a gateway (py4j has no types) and wait until it is gone."""
    from pyspark import SparkContext

    # pyspark keeps the gateway for the next context, which must not find a dead one.
    SparkContext._gateway = None
    SparkContext._jvm = None
    process: subprocess.Popen[bytes] = gateway.proc
    try:
        gateway.shutdown()
    finally:
        if process.stdin is not None:
            # Java ends when its input does.
            process.stdin.close()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
