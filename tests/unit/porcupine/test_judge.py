"""What the judge of histories lets pass and what it does not: histories made by hand."""

import random
from pathlib import Path

import pytest

from machine_parts import PARTS
from quorate_porcupine.build import judge_path
from quorate_porcupine.judge import judge, judge_lines
from quorate_porcupine.operations import Operation


def op(
    kind: str,
    at: float,
    end: float | None,
    result: str | None = "OK",
    argument: str | None = None,
    key: str = "k",
) -> Operation:
    """Times in milliseconds; `end` None is an unknown outcome."""
    end_ns = None if end is None else round(end * 1e6)
    return Operation(0, kind, key, argument, result, round(at * 1e6), end_ns)


def set_(value: str, at: float, end: float | None) -> Operation:
    return op("SET", at, end, argument=value)


def get(value: str | None, at: float, end: float) -> Operation:
    return op("GET", at, end, value)


LEGAL: dict[str, list[Operation]] = {
    "nothing": [],
    "one after the other": [get(None, 0, 1), set_("a", 2, 3), get("a", 4, 5)],
    "a read at the same time as a write sees either": [
        set_("a", 0, 1),
        set_("b", 2, 6),
        get("a", 3, 4),
        get("b", 3, 5),
    ],
    "an unknown write may take effect late": [
        set_("a", 0, None),
        set_("b", 1, 2),
        get("b", 3, 4),
        get("a", 50, 51),
    ],
    "an unknown write of a value that another wrote too may take effect late": [
        set_("a", 0, None),
        set_("a", 1, 2),
        get("a", 3, 4),
        set_("b", 5, 6),
        get("a", 7, 8),
    ],
    "an unknown write of a number that was counted to may take effect late": [
        set_("5", 0, None),
        set_("4", 1, 2),
        op("INCR", 3, 4, "5"),
        get("5", 5, 6),
        set_("b", 7, 8),
        get("5", 9, 10),
    ],
    "an unknown write may never take effect": [set_("a", 0, None), get(None, 1, 2)],
    "an unknown write may be overwritten unseen": [
        set_("a", 0, None),
        op("DEL", 1, 2, "1"),
        get(None, 3, 4),
    ],
    "all other commands": [
        op("DEL", 0, 1, "0"),
        op("INCR", 2, 3, "1"),
        op("INCR", 4, None),
        op("INCR", 6, 7, "3"),
        op("DEL", 8, 9, "1"),
        op("SETNX", 10, 11, "OK", "x"),
        op("SETNX", 12, 13, None, "y"),
        get("x", 14, 15),
        op("FLUSH", 16, 17),
        get(None, 18, 19),
    ],
    "keys are independent": [set_("a", 0, 1), op("GET", 2, 3, None, key="other")],
    "many long reads of one value": [set_("a", 0, 1), set_("b", 500, 501)]
    + [get("a", 2 + step, 499) for step in range(300)]
    + [get("b", 3 + step, 600) for step in range(300)],
}
ILLEGAL: dict[str, list[Operation]] = {
    "a stale read": [set_("a", 0, 1), set_("b", 2, 3), get("a", 4, 5)],
    "a lost write": [set_("a", 0, 1), get(None, 2, 3)],
    "a value nobody wrote": [set_("a", 0, 1), get("z", 2, 3)],
    "a value from the future": [get("a", 0, 1), set_("a", 2, 3)],
    "two reads that see two writes in opposite order": [
        set_("a", 0, 10),
        set_("b", 0, 10),
        get("a", 20, 21),
        get("b", 22, 23),
    ],
    "an unknown write that takes effect twice": [
        set_("a", 0, None),
        get("a", 1, 2),
        set_("b", 3, 4),
        get("a", 5, 6),
    ],
    "an unknown write that takes effect before it was asked for": [
        get("a", 0, 1),
        set_("a", 2, None),
    ],
    "an increment counted twice": [op("INCR", 0, 1, "1"), op("INCR", 2, 3, "3")],
    "two holders of one lock": [
        op("SETNX", 0, 1, "OK", "x"),
        op("SETNX", 2, 3, "OK", "y"),
    ],
    "something deleted that was not there": [op("DEL", 0, 1, "1")],
    "a refused lock that nobody held": [op("SETNX", 0, 1, None, "x")],
    "a stale read among many long ones": [set_("a", 0, 1), set_("b", 100, 101)]
    + [get("a", 2 + step, 600) for step in range(300)],
}


@pytest.mark.needs("go")
@pytest.mark.parametrize("name", LEGAL)
def test_what_one_correct_store_could_answer_is_ok(name: str) -> None:
    verdict = judge(LEGAL[name])
    assert verdict.word == "ok", verdict.text


@pytest.mark.needs("go")
@pytest.mark.parametrize("name", ILLEGAL)
def test_what_no_correct_store_could_answer_is_illegal(name: str) -> None:
    verdict = judge(ILLEGAL[name])
    assert verdict.word == "illegal", verdict.text


def _of_one_store(chance: random.Random, count: int, keys: int) -> list[Operation]:
    """What clients see of one store that takes effect within each call; one in fifty unheard."""
    found = []
    held: dict[str, str] = {}
    for number in range(count):
        moment = 10.0 * number
        key = f"k{chance.randrange(keys)}"
        call, end = moment - chance.uniform(0, 40), moment + chance.uniform(0, 40)
        known = end if chance.random() < 0.98 else None
        if chance.random() < 0.5:
            if known is not None:
                found.append(op("GET", call, known, held.get(key), key=key))
            continue
        if known is not None or chance.random() < 0.5:
            held[key] = str(number)
        found.append(op("SET", call, known, argument=str(number), key=key))
    return found


@pytest.mark.needs("go")
def test_one_stale_read_in_a_long_history_is_shown_in_a_small_window() -> None:
    history = _of_one_store(random.Random(1), count=4000, keys=4)
    assert judge(history).word == "ok"
    writes = [each for each in history if each.key == "k2" and each.kind == "SET" and each.is_known]
    middle = len(writes) // 2
    old, new = writes[middle], writes[middle + 8]
    assert new.end_ns is not None
    stale = Operation(7, "GET", "k2", None, old.argument, new.end_ns + 1, new.end_ns + 2)

    verdict = judge([*history, stale])

    assert verdict.word == "illegal"
    lines = verdict.text.splitlines()
    assert lines[:2] == [
        'illegal: key "k2": no order explains every answer',
        "  whatever the key held before",
    ]
    assert lines[-1].endswith(f'client 7: GET -> "{old.argument}"')
    assert len(lines) < 40, verdict.text


@pytest.mark.needs("go")
def test_what_is_no_history_is_refused_with_the_number_of_its_line() -> None:
    good = set_("a", 0, 1).line()
    with pytest.raises(ValueError, match=r"line 2: kind \"PUT\" is not known"):
        judge_lines(good + "\n" + good.replace('"SET"', '"PUT"') + "\n")
    with pytest.raises(ValueError, match=r"line 1: an answered operation returns at or after"):
        judge_lines(good.replace('"return": 1000000', '"return": -1'))


def test_a_machine_without_go_and_without_the_program_lacks_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not PARTS["go"].find()

    judge_path().parent.mkdir(parents=True)
    judge_path().touch()
    assert PARTS["go"].find()
