"""Each case of each case file, judged.

The folder is tests/conformance/cases, or what the environment variable QUORATE_CONFORMANCE names.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from quorate_conformance.case_files import OWN_FOLDER, Case, case_folder, read_cases
from quorate_conformance.judges import judge_of


@pytest.mark.parametrize("case", read_cases(case_folder()), ids=lambda case: case.id)
def test_case(case: Case, not_applicable: Callable[[str], NoReturn]) -> None:
    judge = judge_of(case)
    if isinstance(judge, str):
        not_applicable(judge)
    judge(case)


def test_every_case_of_the_projects_own_folder_has_a_judge() -> None:
    cases = read_cases(OWN_FOLDER)

    assert {case.kind for case in cases} == {
        "counter_cases",
        "ha_scenarios",
        "planner_cases",
        "reduce_append_cases",
        "repair_cases",
        "zone_cases",
    }
    assert [case.id for case in cases if isinstance(judge_of(case), str)] == []


def test_sections_that_are_objects_are_read() -> None:
    sections = Counter(case.section for case in read_cases(OWN_FOLDER))

    assert sections["update_pending_keys"] == 18
    assert sections["pending_queue_cases"] == 4
    assert sections["states"] == 7


def test_an_object_without_lists_of_objects_is_one_case(tmp_path: Path) -> None:
    chain = {"chain": [["a", "b"], ["b"]], "last_link_of": {"a": 0}}
    states = {"local": {"x": "well"}, "global": [{"expect": "x"}, {"expect": "y"}]}
    file = {"about": "words", "rule": {"text": "words"}, "chain": chain, "states": states}
    (tmp_path / "weather_cases.json").write_text(json.dumps(file))

    assert [case.id for case in read_cases(tmp_path)] == [
        "weather_cases-rule-whole",
        "weather_cases-chain-whole",
        "weather_cases-states-local",
        "weather_cases-states-global-0",
        "weather_cases-states-global-1",
    ]


def test_a_folder_without_case_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="QUORATE_CONFORMANCE"):
        read_cases(tmp_path)


def test_a_kind_nobody_knows_is_said_to_be_not_applicable() -> None:
    judge = judge_of(Case("weather_cases", "cases", "rain", {}))

    assert judge == "there is no judge for the kind 'weather_cases'"
