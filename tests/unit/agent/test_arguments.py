"""What an agent is told on its command line: where it listens, and what others are told."""

import pytest

from quorate_agent.arguments import read_arguments, settings_of
from quorate_agent.settings import AgentSettings

WHO = ["--name", "a", "--data", "/data", "--cluster", "main", "--secret-file", "/secret"]


def settings(*words: str) -> AgentSettings:
    return settings_of(read_arguments([*WHO, *words]))


def told(found: AgentSettings) -> tuple[str, int, str]:
    return found.told_peer_host, found.told_peer_port, found.told_client_host


def test_others_are_told_where_an_agent_listens() -> None:
    found = settings("--peer", "10.0.0.7:7100", "--client-host", "10.0.0.8")

    assert told(found) == ("10.0.0.7", 0, "10.0.0.8")
    assert told(settings()) == ("127.0.0.1", 0, "127.0.0.1")


@pytest.mark.parametrize(
    ("announced", "host", "port"),
    [
        ("10.1.0.7", "10.1.0.7", 0),
        ("10.1.0.7:7200", "10.1.0.7", 7200),
        ("agent-1.main.svc.cluster.local", "agent-1.main.svc.cluster.local", 0),
        ("agent-1.main:7200", "agent-1.main", 7200),
        ("fd00::7", "fd00::7", 0),
        ("[fd00::7]", "fd00::7", 0),
        ("[fd00::7]:7200", "fd00::7", 7200),
    ],
)
def test_or_what_is_announced(announced: str, host: str, port: int) -> None:
    every = ["--peer", "0.0.0.0:7100", "--client-host", "::"]

    found = settings(*every, "--announce-peer", announced, "--announce-client-host", "agent-1.main")

    assert told(found) == (host, port, "agent-1.main")
    assert (found.peer_host, found.peer_port, found.client_host) == ("0.0.0.0", 7100, "::")


def test_an_ipv6_host_stands_in_brackets_before_its_port() -> None:
    found = settings("--peer", "[::1]:7100", "--client-host", "[::1]", "--admin", "[::]:9100")

    assert (found.peer_host, found.client_host, found.admin_host) == ("::1", "::1", "::")
    assert told(found) == ("::1", 0, "::1")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--peer", "0.0.0.0:7100"], "--peer 0.0.0.0 means every address of this machine"),
        (["--peer", "[::]:7100"], "add --announce-peer with an address or a DNS name"),
        (["--client-host", "0.0.0.0"], "add --announce-client-host with an address or a DNS name"),
        (["--announce-peer", "0.0.0.0"], "write an address that others can dial or a DNS name"),
        (["--announce-client-host", "a b"], "write an address that others can dial or a DNS name"),
        (["--announce-peer", "agent-1:70000"], "write host:port"),
        (["--peer", "10.0.0.7"], "write host:port"),
        (["--grace-seconds", "-1"], "write seconds, from 0 to 86400"),
    ],
)
def test_what_others_could_not_dial_is_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        settings(*words)

    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
