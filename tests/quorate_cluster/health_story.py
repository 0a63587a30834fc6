"""Where an operator answers about itself by default: `python -m quorate_cluster.health_story`.

Runs in a network of its own with IPv6 only, to which IPv4 is added; no other process has the port
there.  Prints what answered as one JSON object; the test that starts it judges.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.error import URLError

from quorate_cluster.processes import asked, environment, python
from quorate_cluster.waiting import wait_until
from quorate_control_plane.components import Component

PORT = 8080
KUBECONFIG = {
    "current-context": "here",
    "contexts": [{"name": "here", "context": {"cluster": "away", "user": "operator"}}],
    "clusters": [{"name": "away", "cluster": {"server": "http://[::1]:9"}}],
    "users": [{"name": "operator", "user": {"token": "none"}}],
}


def _status(host: str) -> int:
    """The status of /healthz; 0 if nothing listens."""
    try:
        return asked(host, PORT, "/healthz")[0]
    except URLError:
        return 0


def main() -> None:
    """Start an operator without --health; ask it over IPv6, then over IPv4 too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("log", "run"):
            (folder / each).mkdir()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(KUBECONFIG))
        command = python("quorate_operator", "kubernetes", "--kubeconfig", str(kubeconfig))
        operator = Component("operator", folder, command, environment())
        operator.start()
        seen: dict[str, object] = {}
        try:
            seen["::1"] = wait_until(lambda: _status("::1"), "answer over IPv6", 30)
            seen["127.0.0.1 while there is none"] = _status("127.0.0.1")
            subprocess.run(["ip", "addr", "add", "127.0.0.1/8", "dev", "lo"], check=True)
            seen["127.0.0.1"] = _status("127.0.0.1")
        except TimeoutError as late:
            seen["late"] = f"{late}; {operator.log.read_text()[-1000:]}"
        finally:
            operator.kill()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main()
