"""Finds the API server and the credentials for it: a kubeconfig file, or the pod's account."""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from quorate.facts.errors import QuorateError

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class AccessRefused(QuorateError):
    """No usable access was found; the message names the file, the problem and the way out."""


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """One API server with credentials.  `token_path`: read again for each request (it rotates)."""

    server: str
    context: ssl.SSLContext | None
    namespace: str = "default"
    token: str = field(default="", repr=False)
    token_path: Path | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request."""
        token = self.token_path.read_text().strip() if self.token_path else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def find_access(kubeconfig: Path | None) -> KubeAccess:
    """Return the access by `kubeconfig`, else $KUBECONFIG, else the pod's account, else
    ~/.kube/config.

    Raises AccessRefused.
    """
    named = kubeconfig or (Path(os.environ["KUBECONFIG"]) if os.environ.get("KUBECONFIG") else None)
    if named is not None:
        return read_kubeconfig(named)
    if (_ACCOUNT / "token").exists():
        return _pod_access()
    fallback = Path.home() / ".kube" / "config"
    if fallback.exists():
        return read_kubeconfig(fallback)
    raise AccessRefused(
        f"no API server is known: neither --kubeconfig nor $KUBECONFIG is given, {fallback} does "
        "not exist and this is no pod: give --kubeconfig FILE"
    )


def read_kubeconfig(path: Path) -> KubeAccess:
    """Return the access by the current context of a kubeconfig file.  Raises AccessRefused."""
    try:
        content = yaml.safe_load(path.read_text())
        context = _named(content, "contexts", content["current-context"])["context"]
        cluster = _named(content, "clusters", context["cluster"])["cluster"]
        user = _named(content, "users", context["user"])["user"]
        if "exec" in user or "auth-provider" in user:
            raise AccessRefused(
                f"{path}: user {context['user']} logs in by a helper program, which the operator "
                "does not run: give it a kubeconfig with a certificate or a token"
            )
        return KubeAccess(
            cluster["server"].rstrip("/"),
            _tls(path.parent, cluster, user),
            context.get("namespace", "default"),
            user.get("token", ""),
            path.parent / user["tokenFile"] if "tokenFile" in user else None,
        )
    except OSError as error:
        raise AccessRefused(f"{path}: {error.strerror}: give --kubeconfig another file") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise AccessRefused(
            f"{path} is not a kubeconfig with a current context ({error}): try it with kubectl "
            f"--kubeconfig {path} version"
        ) from error


def _pod_access() -> KubeAccess:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    return KubeAccess(
        f"https://{host}:{port}",
        ssl.create_default_context(cafile=_ACCOUNT / "ca.crt"),
        (_ACCOUNT / "namespace").read_text().strip(),
        token_path=_ACCOUNT / "token",
    )


def _named(content: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    for each in content[kind]:
        if each["name"] == name:
            found: Mapping[str, Any] = each
            return found
    raise KeyError(f"{kind} has no {name}")


def _tls(
    folder: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]
) -> ssl.SSLContext | None:
    if not cluster["server"].startswith("https:"):
        return None
    authority = _content(folder, cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _content(folder, user, "client-certificate")
    key = _content(folder, user, "client-key")
    if certificate and key:
        # The ssl module reads client certificates from files only.
        with tempfile.NamedTemporaryFile() as both:
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def _content(folder: Path, owner: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}-data" in owner:
        return base64.b64decode(owner[f"{name}-data"])
    return (folder / owner[name]).read_bytes() if name in owner else None
