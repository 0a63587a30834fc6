"""The program of `helm test`, as far as it needs no cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quorate_cli import zone_check

_OWN = {"quorate", "quorate_cli"}
_IMPORTED = """
import json, sys
before = {*sys.modules}
import quorate_cli.zone_check
print(json.dumps(sorted({name.partition(".")[0] for name in {*sys.modules} - before})))
"""


def test_it_imports_nothing_that_the_operators_image_lacks() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _IMPORTED], capture_output=True, text=True, check=True
    )

    others = {*json.loads(done.stdout)} - _OWN - sys.stdlib_module_names
    assert others == set()


def test_a_zone_without_an_endpoint_is_named_with_the_way_out() -> None:
    leaving = {"metadata": {"namespace": "shop", "name": "old", "deletionTimestamp": "now"}}
    new = {"metadata": {"namespace": "shop", "name": "carts"}}

    [(name, problem)] = zone_check.check_all([leaving, new])

    assert name == "shop/carts"
    assert problem == (
        "status.endpoints is empty: `kubectl describe --namespace shop zone carts` shows the reason"
    )


def test_without_an_account_it_says_which_file_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert zone_check.main(["--account", str(tmp_path)]) == 1
    assert f"{tmp_path}/namespace" in capsys.readouterr().err
