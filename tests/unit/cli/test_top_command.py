"""`quorate top`: rates, times and states from two readings of metrics."""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from quorate.facts.quantile import quantile
from quorate_cli.commands.top import watch
from quorate_cli.objects import load
from quorate_cli.objects.load import Reading, load_between, parse
from quorate_cli.terminal.figures import duration
from write_metrics import agent_metrics, operator_metrics

INF = float("inf")
OPERATOR = """
quorate_operator_partitions{cluster="main",namespace="",state="available",zone="books"} 60.0
quorate_operator_partitions{cluster="main",namespace="",state="degraded",zone="books"} 4.0
quorate_operator_partitions{cluster="main",namespace="",state="unavailable",zone="books"} 0.0
quorate_operator_migrations{cluster="main",namespace="",state="running",zone="books"} 2.0
quorate_operator_migrations{cluster="main",namespace="",state="queued",zone="books"} 5.0
# TYPE quorate_operator_moved_bytes counter
quorate_operator_moved_bytes_total{cluster="main",namespace="",zone="books"} %s
"""


def _agent(reads: int, writes: int, refused: int = 0, pings: int = 0, slow: int = 0) -> str:
    """Metrics of an agent; `slow`: reads that took from 50 to 100 ms, the others took 1 ms."""
    of = 'quorate_commands_total{zone="books",family='
    buckets = (("0.001", reads - slow), ("0.05", reads - slow), ("0.1", reads), ("+Inf", reads))
    return "\n".join(
        [
            "# TYPE quorate_commands counter",
            f'{of}"read",result="ok"}} {reads}',
            f'{of}"write",result="ok"}} {writes}',
            f'{of}"write",result="refused"}} {refused}',
            f'{of}"connection",result="ok"}} {pings}',
            "# TYPE quorate_command_seconds histogram",
            *(
                f'quorate_command_seconds_bucket{{family="read",le="{bound}"}} {count}'
                for bound, count in buckets
            ),
            "quorate_master_connected 1",
            "quorate_client_connections 3",
            'quorate_replication_lag_updates{zone="books"} 7',
            'quorate_replication_lag_updates{zone="other"} 2',
            "quorate_resident_memory_bytes 5e7",
            "",
        ]
    )


def _reading(
    at_s: float,
    agents: Mapping[str, str],
    operator: str = "",
    problems: Mapping[str, str] | None = None,
) -> Reading:
    found = {name: parse(text) for name, text in agents.items()}
    return Reading(at_s, found, parse(operator), problems or {})


BEFORE = _reading(100, {"agent-1": _agent(1000, 50), "agent-2": _agent(0, 0)}, OPERATOR % "1e6")
AFTER = _reading(
    102,
    {"agent-1": _agent(1200, 70, refused=4, pings=2, slow=20), "agent-2": _agent(100, 0)},
    OPERATOR % "5e6",
)


def test_rates_are_those_of_the_interval() -> None:
    found = load_between(BEFORE, AFTER)

    one, two = found.agents
    assert found.seconds == 2
    assert (one.rates.reads, one.rates.writes) == (100, 12)
    assert (one.rates.others, one.rates.failed) == (1, 2)
    assert (two.rates.reads, two.rates.writes) == (50, 0)


def test_a_zone_has_the_commands_of_all_agents_and_what_the_operator_knows() -> None:
    books, other = load_between(BEFORE, AFTER).zones

    assert (books.name, books.rates.reads, books.rates.writes) == ("books", 150, 12)
    assert (books.available, books.degraded, books.unavailable) == (60, 4, 0)
    assert (books.migrations_running, books.migrations_queued) == (2, 5)
    assert books.moved_bytes_per_s == 2e6
    assert (books.lag_updates, other.lag_updates) == (7, 2)
    assert (other.rates.reads, other.available, other.moved_bytes_per_s) == (0, None, None)


def test_times_are_those_of_the_interval() -> None:
    one, two = load_between(BEFORE, AFTER).agents

    assert one.read_s is not None
    assert one.read_s[0] < 0.001
    assert 0.05 < one.read_s[1] < 0.1
    assert one.write_s is None
    assert two.read_s is not None
    assert two.read_s[1] < 0.001


def test_a_process_that_was_started_again_counts_from_0() -> None:
    again = _reading(102, {"agent-1": _agent(10, 0)})

    (agent,) = load_between(BEFORE, again).agents

    assert agent.rates.reads == 5


def test_what_was_not_read_before_has_no_rates() -> None:
    before = _reading(100, {"agent-1": _agent(1000, 50)})

    found = load_between(before, AFTER)

    one, two = found.agents
    assert (one.problem, one.rates.reads) == ("", 100)
    assert "rates take two readings" in two.problem
    assert [zone.rates.reads for zone in found.zones] == [100, 0]
    assert [zone.moved_bytes_per_s for zone in found.zones] == [None, None]


def test_an_agent_without_metrics_is_shown_with_the_reason() -> None:
    gone = _reading(102, {"agent-1": _agent(1200, 70)}, problems={"agent-2": "it does not run"})

    _, two = load_between(BEFORE, gone).agents

    assert (two.name, two.problem, two.rates.reads) == ("agent-2", "it does not run", 0)


@pytest.mark.parametrize(
    ("share", "wanted"), [(0.25, 0.5), (0.5, 1.0), (0.74, 2.5), (0.99, 3.0), (1.0, 3.0)]
)
def test_a_quantile_lies_in_its_bucket(share: float, wanted: float) -> None:
    buckets = [(1.0, 50.0), (2.0, 50.0), (3.0, 98.0), (INF, 100.0)]

    assert quantile(share, buckets) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [(0, "0.0 µs"), (72e-6, "72 µs"), (0.00123, "1.2 ms"), (0.16, "160 ms"), (2.5, "2.5 s")],
)
def test_a_time_is_short(seconds: float, wanted: str) -> None:
    assert duration(seconds) == wanted


def _shown(*, as_json: bool) -> str:
    readings = iter([BEFORE, AFTER])
    slept: list[float] = []
    to = Console(file=io.StringIO(), width=80)
    watch(lambda: next(readings), 2.0, to, once=True, as_json=as_json, sleep=slept.append)
    assert slept == [2.0]
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def test_one_interval_is_printed_as_tables() -> None:
    shown = _shown(as_json=False)

    for word in ("books", "agent-1", "agent-2", "2+5", "2.0 MB/s", "150", "led"):
        assert word in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_one_interval_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _shown(as_json=True)

    found = json.loads(capsys.readouterr().out)
    assert [zone["name"] for zone in found["zones"]] == ["books", "other"]
    assert found["agents"][0]["rates"] == {
        "reads": 100.0,
        "writes": 12.0,
        "others": 1.0,
        "failed": 2.0,
    }


def test_every_metric_that_is_read_is_served() -> None:
    served = {each.name for each in (*agent_metrics(), *operator_metrics())}
    read = set(re.findall(r'"(quorate_\w+?)(?:_bucket)?"', Path(load.__file__).read_text()))

    assert len(read) > 10
    assert read <= served
