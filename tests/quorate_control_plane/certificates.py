"""Which certificates the parts of the control plane show each other: one authority per run."""

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

# Own settings, so that the machine's openssl.cnf does not matter.
_SETTINGS = """
[req]
prompt = no
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign, digitalSignature
subjectKeyIdentifier = hash
[leaf]
basicConstraints = CA:FALSE
keyUsage = digitalSignature
extendedKeyUsage = clientAuth, serverAuth
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""
_DAYS = "30"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its certificate, as PEM files."""

    key: Path
    certificate: Path


class Authority:
    """A certificate authority in `folder`; elliptic curve keys, which take milliseconds to make."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir(mode=0o700)
        self.pair = self._make("ca", "/CN=quorate-test-authority", "authority", "DNS:authority")

    def issue(self, name: str, subject: str, names: str) -> KeyPair:
        """A certificate for `subject` ("/O=group/CN=user"), good as client and for `names`."""
        pair = self.pair
        return self._make(
            name, subject, "leaf", names, "-CA", str(pair.certificate), "-CAkey", str(pair.key)
        )

    def kubeconfig(self, name: str, pair: KeyPair, server: str) -> Path:
        """A kubeconfig file by which the owner of `pair` reaches `server`."""

        def inline(path: Path) -> str:
            return base64.b64encode(path.read_bytes()).decode()

        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": inline(self.pair.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate-data": inline(pair.certificate),
                        "client-key-data": inline(pair.key),
                    },
                }
            ],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        }
        path = self._folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(document))  # JSON is YAML
        return path

    def _make(self, name: str, subject: str, section: str, names: str, *more: str) -> KeyPair:
        pair = KeyPair(self._folder / f"{name}.key", self._folder / f"{name}.crt")
        settings = self._folder / f"{name}.cnf"
        settings.write_text(_SETTINGS.format(names=names))
        command = ["openssl", "req", "-x509", "-new", "-newkey", "ec"]
        command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", _DAYS]
        command += ["-config", str(settings), "-extensions", section, "-subj", subject]
        command += ["-keyout", str(pair.key), "-out", str(pair.certificate), *more]
        made = subprocess.run(command, capture_output=True, text=True)
        settings.unlink()
        if made.returncode != 0:
            raise RuntimeError(f"openssl (3.0 or later) made no certificate {name}: {made.stderr}")
        return pair
