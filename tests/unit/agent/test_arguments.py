"""What an agent is told on its command line: where it listens, and what others are told."""

import pytest

from quorate_agent.process.arguments import read_arguments, settings_of
from quorate_agent.process.settings import AgentSettings
from quorate_operator.owned.agent_pod import pod_template
from quorate_owned.facts import managed_cluster

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


@pytest.mark.parametrize("pod_ip", ["10.0.0.7", "fd00::7", "fd00:0:0:0:0:0:0:7", "::1"])
def test_the_command_line_of_a_pod_is_understood_whatever_its_address(pod_ip: str) -> None:
    managed = managed_cluster().spec.managed
    assert managed is not None
    pod = pod_template("main", managed, "agent-1", {}, {}, "shop")
    words = [each.replace("$(POD_IP)", pod_ip) for each in pod["spec"]["containers"][0]["args"]]

    found = settings_of(read_arguments(words))

    assert told(found) == (pod_ip, 0, pod_ip)
    assert (found.peer_host, found.peer_port) == (pod_ip, 7100)
    assert (found.admin_host, found.admin_port) == (pod_ip, 8080)


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
        (["--peer", "fd00::7"], "write host:port"),
        (["--admin", "fd00:0:0:0:0:0:0:7"], "write host:port"),
        (["--peer", "fd00::7:70000"], "write host:port"),
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


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("1000", 1000), ("512Mi", 512 << 20), ("2Gi", 2 << 30)]
)
def test_the_reserve_of_a_disk_is_bytes_with_or_without_a_unit(text: str, expected: int) -> None:
    assert settings("--disk-reserve", text).disk_reserve == expected
    assert settings().disk_reserve is None


@pytest.mark.parametrize("text", ["", "5%", "2G", "Mi", "1.5Gi", "KiMi"])
def test_another_reserve_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings(f"--disk-reserve={text}")
    assert "write bytes, or for example 512Mi or 2Gi" in capsys.readouterr().err


def test_an_external_listener_is_announced_by_the_agent_or_left_to_the_operator() -> None:
    offset = ["--external-port-offset", "1000"]
    own = settings(*offset, "--announce-external-host", "a.example.org")
    left = settings(*offset, "--client-ports-from-master", "7200-8079")

    assert (own.external_port_offset, own.told_external_host) == (1000, "a.example.org")
    assert (left.external_port_offset, left.told_external_host) == (1000, "")
    assert (settings().external_port_offset, settings().told_external_host) == (0, "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--announce-external-host", "a.org"], "add --external-port-offset"),
        (["--external-port-offset", "0"], "write a number of ports, for example 1000"),
        (["--external-port-offset", "60000"], "leads from client port 7000 above 65535"),
        (
            ["--external-port-offset", "100", "--client-ports-from-master", "7200-7300"],
            "to another one of them: write 101 or more",
        ),
        (
            ["--external-port-offset", "60000", "--client-ports-from-master", "7200-7300"],
            "leads from client port 7300 above 65535",
        ),
    ],
)
def test_an_external_listener_that_cannot_be_is_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        settings(*words)
    assert sentence in capsys.readouterr().err


def test_attributes_and_storage_profiles_are_given_one_by_one() -> None:
    given = settings(
        *("--attribute", "region=EU", "--attribute", "x.io/disk.size=10", "--attribute", "spare="),
        *("--storage-profile", "nvme", "--storage-profile", "disk"),
    )

    assert given.attributes == {"region": "EU", "x.io/disk.size": "10", "spare": ""}
    assert given.storage_profiles == ("disk", "nvme")
    assert (settings().attributes, settings().storage_profiles) == ({}, ("disk", "memory"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--attribute", "region"], "write NAME=VALUE as in a label of Kubernetes"),
        (["--attribute", "=EU"], "write NAME=VALUE"),
        (["--attribute", "region=E U"], "write NAME=VALUE"),
        (["--attribute", f"region={'E' * 64}"], "write NAME=VALUE"),
        (["--attribute", "a=1", "--attribute", "a=2"], "--attribute a is given twice"),
        (
            [word for at in range(99) for word in ("--attribute", f"a{at}={'E' * 50}")],
            "have more than 4096 bytes",
        ),
        (["--storage-profile", ""], "write a name of letters and digits"),
        (["--storage-profile", "fast disk"], "write a name of letters and digits"),
    ],
)
def test_other_attributes_are_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        settings(*words)
    assert sentence in capsys.readouterr().err


def test_an_agent_lingers_for_clients_of_a_service_where_it_runs_in_a_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert settings().linger_s == 0

    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    assert settings().linger_s > 0
    assert settings("--linger-seconds", "9").linger_s == 9
