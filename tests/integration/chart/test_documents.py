"""docs/kubernetes.md and docs/operations.md, run command by command as a reader types them."""

from pathlib import Path

import pytest

from quorate_cluster.names import Names
from quorate_cluster.road import QUIET, Road
from quorate_cluster.waiting import wait_until
from quorate_documented.commands import commands_of
from quorate_documented.reader import NOT_RUN, a_reader, document, follow_kubernetes_md

pytestmark = [
    pytest.mark.integration,
    pytest.mark.process,
    pytest.mark.needs("helm", "own-names"),
    pytest.mark.timeout(900),
]

KEYS = 300
INSTALL = ("## Install", "## A cluster and a zone")
"""The sections of kubernetes.md that operations.md builds on."""


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(tmp_path / "hosts", monkeypatch)


def test_the_commands_of_kubernetes_md_do_what_it_says(tmp_path: Path, names: Names) -> None:
    with a_reader("helm4", tmp_path, names) as reader:
        follow_kubernetes_md(reader)


def test_the_commands_of_operations_md_show_what_it_says(tmp_path: Path, names: Names) -> None:
    with a_reader("helm3", tmp_path, names) as reader:
        for heading in INSTALL:
            section = document("kubernetes.md").partition(f"\n{heading}\n")[2].partition("\n## ")[0]
            assert section, heading
            for command in commands_of(section):
                reader.type(command)
        wait_until(lambda: _is_quiet(reader.road), "a quiet zone", 60, reader.road.logs)
        with reader.road.client("library") as client:
            for number in range(KEYS):
                client.set(f"key-{number}", number)

        for command in commands_of(document("operations.md")):
            reader.type(command)

        with reader.road.client("library") as client:
            found = [client.get(f"key-{number}") for number in range(KEYS)]
        assert found == [b"%d" % number for number in range(KEYS)], "lost by what the page says"


def _is_quiet(road: Road) -> bool:
    cluster = road.conditions("storagecluster", "main")
    is_led = dict.fromkeys(("Ready", "AgentsUpdated", "EvictionsAllowed"), "True")
    return (
        is_led.items() <= cluster.items()
        and QUIET.items() <= road.conditions(name="library").items()
    )


def test_each_reason_is_about_a_command_that_is_there() -> None:
    texts = [
        command.text
        for name in ("kubernetes.md", "operations.md")
        for command in commands_of(document(name))
    ]

    idle = [begin for begin in NOT_RUN if not any(text.startswith(begin) for text in texts)]
    assert idle == []
