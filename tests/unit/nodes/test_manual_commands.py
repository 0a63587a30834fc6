"""Which commands of the manual are run on nodes, and that there are some."""

import pytest

from quorate_nodes.release.installed import MANUAL, commands_of

TEXT = """
# Title

## First

```sh
docker build --tag X . && docker push X
helm install x
```

Text.

```yaml
not: this
```

```sh
kubectl apply --filename - <<END
kind: Y
END
```

## Second

```sh
never
```
"""


def test_all_commands_below_a_heading_but_those_of_docker() -> None:
    wanted = "helm install x\nkubectl apply --filename - <<END\nkind: Y\nEND\n"

    assert commands_of(TEXT, "First") == wanted


def test_a_heading_that_is_not_there_is_named() -> None:
    with pytest.raises(AssertionError, match="no heading 'Third'"):
        commands_of(TEXT, "Third")


def test_the_manual_has_what_the_first_day_runs() -> None:
    manual = MANUAL.read_text()

    assert "helm install quorate" in commands_of(manual, "Install")
    assert "kind: StorageCluster" in commands_of(manual, "A cluster and a zone")
