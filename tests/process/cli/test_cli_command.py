"""`quorate cli ZONE …` beside a real cluster: by redis-cli, and where there is none."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quorate_cli.dev.dev_cluster import DevCluster
from quorate_cli.dev.ports import STRIDE

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

EXAMPLE = Path(__file__).parents[3] / "examples" / "zone.yaml"
PYTHONPATH = os.pathsep.join(path for path in sys.path if path)

Quorate = Callable[..., str]
Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def run(folder: Path) -> Run:
    """The command with these bytes as its standard input, finding programs in `path` only."""

    def run_it(
        *arguments: str | bytes, path: str | None = None, stdin: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "QUORATE_FOLDER": str(folder)}
        return subprocess.run(
            [sys.executable, "-m", "quorate_cli", *arguments],
            env=environment if path is None else {**environment, "PATH": path},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
        )

    return run_it


@pytest.fixture
def library(quorate: Quorate) -> None:
    """A zone that serves."""
    quorate("dev", "up")
    quorate("apply", "-f", str(EXAMPLE), "--wait", "60")


@pytest.mark.needs("redis-cli")
@pytest.mark.usefixtures("library")
def test_commands_reach_the_zone_by_redis_cli(run: Run) -> None:
    assert run("cli", "library", "set", "greeting", "two  words").stdout == b"OK\n"

    assert run("cli", "library", "--raw", "get", "greeting").stdout == b"two  words\n"
    refused = run("cli", "library", "incr", "greeting")
    assert refused.returncode == 1
    assert b"ERR value is not an integer" in refused.stderr
    typed = run("cli", "library", stdin=b"incr n\nget n\n")
    assert (typed.returncode, typed.stdout) == (0, b"1\n1\n")
    assert run("cli", "library", stdin=b"incr greeting\nget n\n").returncode == 1


@pytest.mark.usefixtures("library")
def test_commands_reach_the_zone_without_redis_cli(run: Run, tmp_path: Path) -> None:
    def ask(*words: str | bytes, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        done = run("cli", "library", *words, path=str(tmp_path), stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    for number in range(8):  # of all agents
        assert ask("set", f"key-{number}", b"\xff \n") == (0, b"OK\n", b"")
        assert ask("get", f"key-{number}") == (0, b"\xff \n\n", b"")

    assert ask("set", "n", "--help", "--server", "x") == (1, b"", b"ERR syntax error\n")
    assert ask(stdin=b"set n 1\nincr n\nfoo\n")[:2] == (1, b"OK\n2\n")
    code, _, said = ask("--raw", "get", "n")
    assert code == 1
    assert b"--raw is an option of redis-cli, which is not installed" in said


@pytest.mark.usefixtures("library")
def test_arguments_and_input_are_handed_on_unharmed(
    run: Run, tmp_path: Path, cluster: DevCluster
) -> None:
    program = tmp_path / "redis-cli"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os, signal, sys\n"
        "told = [os.fsencode(each).hex() for each in sys.argv[1:]]\n"
        "print('redis-cli 6.2.1' if sys.argv[1:] == ['--version'] else json.dumps(told))\n"
        "print(sys.stdin.read(), file=sys.stderr)\n"
        "sys.exit(7)\n"
    )
    program.chmod(0o755)
    words: list[str | bytes] = ["-x", "--help", "--folder", "x", "--", "", "a  b", b"\xff\n"]

    done = run("cli", "library", *words, path=str(tmp_path), stdin=b"some input")

    assert done.returncode == 7
    assert done.stderr == b"some input\n"
    (zone,) = cluster.state().zones
    where = ["-c", "-h", "127.0.0.1", "-p", str(zone.ports["agent-1"])]
    told = [bytes.fromhex(each) for each in json.loads(done.stdout)]
    assert told == [os.fsencode(each) for each in (*where, *words)]


@pytest.mark.usefixtures("library")
def test_an_agent_that_has_just_died_is_passed_by(
    run: Run, cluster: DevCluster, tmp_path: Path
) -> None:
    cluster.kill("agent-1")

    assert run("cli", "library", "set", "a", "b", path=str(tmp_path)).stdout == b"OK\n"


def test_another_cluster_beside_it_is_not_written_to(
    quorate: Quorate, run: Run, cluster: DevCluster, tmp_path: Path
) -> None:
    """What listens on 7000 is another's; where something does already, so much the better."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", 7000))
            other.listen()
        except OSError:
            pass
        said = quorate("dev", "up")
        applied = quorate("apply", "-f", str(EXAMPLE), "--wait", "60")

        base = cluster.folder.read().client_port_base
        assert base >= 7000 + STRIDE
        assert "is taken, probably by another cluster: the client ports of this" in said
        line = f"zone library: quorate cli library, or redis-cli -c -h 127.0.0.1 -p {base}"
        assert line in applied
        assert line in quorate("dev", "up")
        assert run("cli", "library", "set", "a", "b", path=str(tmp_path)).stdout == b"OK\n"


def test_without_a_zone_it_is_said_which_there_are(quorate: Quorate, run: Run) -> None:
    quorate("dev", "up", "--agents", "1")
    quorate("apply", "-f", str(EXAMPLE))

    assert "zone 'books' does not exist: there are library" in quorate("cli", "books", code=1)
    said = quorate("cli", "library", "get", "a", code=1)
    assert "zone library: no agent accepts clients now: " in said
