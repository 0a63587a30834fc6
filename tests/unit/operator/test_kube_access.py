"""Where the operator finds the API server, and what it says when it does not."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from quorate_operator.kube.access import AccessRefused, find_access, read_kubeconfig


def kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(whole))
    return path


def test_server_namespace_and_token_are_the_current_contexts(tmp_path: Path) -> None:
    access = read_kubeconfig(kubeconfig(tmp_path / "config", {"token": "t"}))

    assert (access.server, access.namespace) == ("http://127.0.0.1:1", "n")
    assert access.headers() == {"Authorization": "Bearer t"}
    assert "t'" not in repr(access)


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    access = read_kubeconfig(kubeconfig(tmp_path / "config", {"tokenFile": "token"}))
    assert access.headers() == {"Authorization": "Bearer first"}

    (tmp_path / "token").write_text("second")

    assert access.headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a kubeconfig"),
        ("a: 1", "is not a kubeconfig with a current context"),
        ("- 1", "is not a kubeconfig"),
    ],
)
def test_what_is_no_kubeconfig_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    with pytest.raises(AccessRefused, match=said) as refused:
        read_kubeconfig(path)

    assert str(path) in str(refused.value)


def test_a_missing_file_a_login_program_and_a_bad_certificate_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AccessRefused, match="No such file"):
        find_access(tmp_path / "none")
    with pytest.raises(AccessRefused, match="helper program"):
        read_kubeconfig(kubeconfig(tmp_path / "config", {"exec": {"command": "x"}}))
    bad = {"certificate-authority-data": base64.b64encode(b"no certificate").decode()}
    with pytest.raises(AccessRefused):
        read_kubeconfig(kubeconfig(tmp_path / "config", {}, server="https://127.0.0.1", **bad))


def test_nothing_known_at_all_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(AccessRefused, match="give --kubeconfig FILE"):
        find_access(None)
