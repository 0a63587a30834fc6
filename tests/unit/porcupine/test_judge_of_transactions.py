"""What the judge lets pass of transactions and what it does not: by hand, by trying every order."""

import itertools
import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from quorate_porcupine.judge import judge, judge_lines
from quorate_porcupine.operations import Operation, Step, transaction

pytestmark = pytest.mark.needs("go")

_WORDS = re.compile(r"(?P<kind>[A-Z]+) (?P<key>\w+)(?: (?P<argument>[-\w]+))?(?:=(?P<result>.*))?")


def step(text: str) -> Step:
    """`GET x=a`, `GET x=-` (nothing there), `RPUSH l a=1`, `LRANGE l=a b`, `UNCHANGED x=a`."""
    found = _WORDS.fullmatch(text)
    assert found is not None, text
    result = found["result"]
    return Step(found["kind"], found["key"], found["argument"], None if result == "-" else result)


def txn(at: float, end: float | None, *steps: str) -> Operation:
    """Times in milliseconds; `end` None is an unknown outcome."""
    end_ns = None if end is None else round(end * 1e6)
    return transaction(0, [step(each) for each in steps], round(at * 1e6), end_ns)


def one(at: float, end: float | None, text: str) -> Operation:
    """A command by itself."""
    alone = txn(at, end, text)
    each = alone.steps[0]
    return replace(
        alone, kind=each.kind, key=each.key, argument=each.argument, result=each.result, steps=()
    )


LEGAL: dict[str, list[Operation]] = {
    "steps see what those before them did": [
        txn(0, 1, "GET x=-", "SET x a", "GET x=a", "RPUSH l b=1", "RPUSH l c=2", "LRANGE l=b c"),
        txn(2, 3, "DEL x=1", "DEL x=0", "LRANGE l=b c", "DEL l=1", "LRANGE l="),
    ],
    "either order of two at the same time": [
        txn(0, 9, "SET x a", "SET y a"),
        txn(0, 9, "SET x b", "SET y b"),
        txn(10, 11, "GET x=a", "GET y=a"),
    ],
    "commands by themselves between transactions": [
        one(0, 1, "RPUSH l a=1"),
        txn(2, 3, "RPUSH l b=2", "SET x b"),
        one(4, 5, "LRANGE l=a b"),
        one(6, 7, "GET x=b"),
    ],
    "an unknown one that is seen whole": [
        txn(0, None, "SET x a", "RPUSH l a"),
        txn(5, 6, "GET x=a", "LRANGE l=a"),
    ],
    "an unknown one that never happens": [
        txn(0, None, "SET x a", "SET y a"),
        txn(5, 6, "GET x=-", "GET y=-"),
    ],
    "an unknown one that happens late": [
        txn(0, None, "SET x a", "SET y a"),
        txn(5, 6, "GET x=-", "GET y=-"),
        txn(8, 9, "GET x=a", "GET y=a"),
    ],
    "an unknown one whose guard no longer holds": [
        one(0, 1, "SET x a"),
        txn(2, None, "UNCHANGED x=a", "SET x b", "SET y b"),
        one(3, 4, "SET x c"),
        txn(5, 6, "GET x=c", "GET y=-"),
    ],
    "an unknown transfer is seen in sums only": [
        txn(0, None, "INCRBY a -5", "INCRBY b 5"),
        txn(1, 2, "INCRBY a -1=-1", "INCRBY b 1=1"),
        txn(3, 4, "INCRBY a -1=-7", "INCRBY b 1=7"),
    ],
    "two that guard the same key one after the other": [
        txn(0, 9, "UNCHANGED x=-", "SET x a"),
        txn(0, 9, "UNCHANGED x=a", "SET x b"),
    ],
    "many long reads of one value beside transactions": [
        txn(0, 1, "SET x a", "SET y a"),
        txn(500, 501, "SET x b", "SET y b"),
    ]
    + [one(2 + number, 499, "GET x=a") for number in range(200)]
    + [one(3 + number, 600, "GET y=b") for number in range(200)],
}
ILLEGAL: dict[str, list[Operation]] = {
    "a lost update": [
        txn(0, 9, "UNCHANGED x=-", "SET x a"),
        txn(0, 9, "UNCHANGED x=-", "SET x b"),
    ],
    "a lost append": [
        txn(0, 1, "RPUSH l a=1", "RPUSH m a=1"),
        txn(2, 3, "RPUSH l b=1"),
        txn(4, 5, "LRANGE l=b"),
    ],
    "an append seen once only": [
        txn(0, None, "RPUSH l a", "RPUSH m a"),
        txn(2, 3, "LRANGE l=a", "LRANGE m=a"),
        txn(4, 5, "LRANGE l=", "LRANGE m=a"),
    ],
    "write skew": [
        txn(0, 9, "GET x=-", "GET y=-", "SET x a"),
        txn(0, 9, "GET x=-", "GET y=-", "SET y b"),
    ],
    "a fractured read": [
        txn(0, 9, "SET x a", "SET y a"),
        txn(0, 9, "GET x=a", "GET y=-"),
    ],
    "writes of two in opposite orders": [
        txn(0, 9, "RPUSH l a=1", "RPUSH m a=2"),
        txn(0, 9, "RPUSH l b=2", "RPUSH m b=1"),
        one(10, 11, "LRANGE l=a b"),
        one(10, 11, "LRANGE m=b a"),
    ],
    "a read of what was told to have done nothing": [
        txn(0, 1, "SET x a", "SET y a"),
        txn(2, 3, "GET x=aborted", "GET y=a"),
    ],
    "a read in the middle of another": [
        txn(0, 9, "RPUSH l a=1", "RPUSH l b=2"),
        one(0, 9, "LRANGE l=a"),
    ],
    "two that each see the other": [
        txn(0, 9, "SET x a", "GET y=b"),
        txn(0, 9, "SET y b", "GET x=a"),
    ],
    "two reads of one key that differ": [
        one(0, 9, "SET x a"),
        txn(0, 9, "GET x=-", "GET y=-", "GET x=a"),
    ],
    "two readers that disagree on what came first": [
        one(0, 9, "SET x a"),
        one(0, 9, "SET y b"),
        txn(0, 9, "GET x=a", "GET y=-"),
        txn(0, 9, "GET x=-", "GET y=b"),
    ],
    "a stale read": [
        txn(0, 1, "SET x a", "SET y a"),
        txn(2, 3, "GET x=-", "GET y=-"),
    ],
    "the later of two writes without the earlier": [
        one(0, 1, "SET x a"),
        one(2, 3, "SET y b"),
        txn(0, 9, "GET x=-", "GET y=b"),
    ],
    "money from nowhere": [
        txn(0, 1, "INCRBY a -5=-5", "INCRBY b 5=5"),
        txn(2, 3, "INCRBY a -1=-1", "INCRBY b 1=6"),
    ],
    "an unknown one of which half is seen": [
        txn(0, None, "SET x a", "SET y a"),
        txn(5, 6, "GET x=a", "GET y=-"),
    ],
    "an unknown one of which half is seen by each of two": [
        txn(0, None, "SET x a", "SET y a"),
        one(5, 6, "GET x=a"),
        one(7, 8, "GET y=-"),
    ],
    "an unknown one that happens twice": [
        txn(0, None, "RPUSH l a", "SET x a"),
        one(2, 3, "LRANGE l=a a"),
        one(2, 3, "GET x=a"),
    ],
    "an unknown one seen before it was asked for": [
        one(0, 1, "GET x=a"),
        txn(2, None, "SET x a", "SET y a"),
    ],
    "an unknown one that happens although its guard does not hold": [
        one(0, 1, "SET x a"),
        txn(2, None, "UNCHANGED x=b", "SET x c", "SET y c"),
        one(3, 4, "GET y=c"),
    ],
    "a stale read among many long ones": [
        txn(0, 1, "SET x a", "SET y a"),
        txn(100, 101, "SET x b", "SET y b"),
    ]
    + [one(2 + number, 600, "GET x=a") for number in range(200)],
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_transactions_one_after_the_other_could_answer_is_ok(name: str) -> None:
    verdict = judge(LEGAL[name])
    assert verdict.word == "ok", verdict.text


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_no_transactions_one_after_the_other_could_answer_is_illegal(name: str) -> None:
    verdict = judge(ILLEGAL[name])
    assert verdict.word == "illegal", verdict.text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (replace(txn(0, 1, "SET x a"), steps=()).line(), "EXEC has steps"),
        (one(0, 1, "UNCHANGED x=a").line(), "UNCHANGED is part of a transaction"),
        (txn(0, 1, "RPUSH x=1").line(), "RPUSH needs an argument"),
        (txn(0, 1, "RPUSH x a").line(), "RPUSH has a result"),
    ],
)
def test_what_is_no_transaction_is_refused(line: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"line 1: {problem}"):
        judge_lines(line)


# -- a store of our own ----------------------------------------------------------------------------

Store = dict[str, str]


def _apply(store: Store, each: Step) -> str | None:
    """Change the store; what a client is told."""
    there = store.get(each.key)
    match each.kind:
        case "GET" | "UNCHANGED":
            return there
        case "LRANGE":
            return there or ""
        case "SET":
            store[each.key] = str(each.argument)
            return "OK"
        case "DEL":
            return str(int(store.pop(each.key, None) is not None))
        case "INCRBY":
            store[each.key] = str(int(there or "0") + int(each.argument or "0"))
            return store[each.key]
        case "RPUSH":
            store[each.key] = f"{there} {each.argument}" if there else str(each.argument)
            return str(len(store[each.key].split()))
        case other:
            raise ValueError(other)


def _random_step(chance: random.Random, keys: int, value: str) -> Step:
    number = chance.randrange(keys)
    match chance.choice("rrlllc"):
        case "r":
            kind = chance.choice(("GET", "GET", "SET", "DEL"))
            return Step(kind, f"r{number}", value if kind == "SET" else None)
        case "l":
            kind = chance.choice(("LRANGE", "RPUSH"))
            return Step(kind, f"l{number}", value if kind == "RPUSH" else None)
        case _:
            return Step("INCRBY", f"c{number}", str(chance.randrange(-3, 4)))


def _random_steps(chance: random.Random, store: Store, keys: int, value: str) -> list[Step]:
    count = chance.randrange(1, 5)
    steps = [_random_step(chance, keys, f"{value}-{number}") for number in range(count)]
    if chance.random() < 0.2:
        key = f"r{chance.randrange(keys)}"
        steps.insert(0, Step("UNCHANGED", key, None, store.get(key)))
    return steps


def _of_one_store(chance: random.Random, count: int, keys: int) -> list[Operation]:
    """What clients see of one store where each takes effect within its call; some are unheard."""
    found: list[Operation] = []
    store: Store = {}
    for number in range(count):
        moment = 10.0 * number
        call, end = moment - chance.uniform(0, 40), moment + chance.uniform(0, 40)
        asked = _random_steps(chance, store, keys, f"v{number}")
        is_known = chance.random() < 0.99
        if not is_known and chance.random() < 0.5:
            found.append(transaction(number % 8, asked, round(call * 1e6)))
            continue
        steps = [replace(each, result=_apply(store, each)) for each in asked]
        found.append(
            transaction(
                number % 8, steps, round(call * 1e6), round(end * 1e6) if is_known else None
            )
        )
    return found


@pytest.mark.parametrize("seed", range(8))
def test_whatever_one_store_answers_to_transactions_at_the_same_time_is_ok(seed: int) -> None:
    history = _of_one_store(random.Random(seed), count=600, keys=1 + seed % 3)
    verdict = judge(history)
    assert verdict.word == "ok", verdict.text


@pytest.mark.parametrize("seed", range(4))
def test_one_old_list_in_a_long_history_is_shown_in_a_small_part_of_it(seed: int) -> None:
    history = _of_one_store(random.Random(seed), count=600, keys=2)
    last = history[-1].call_ns
    reads = [
        (at, number, each)
        for at, operation in enumerate(history)
        for number, each in enumerate(operation.steps)
        if each.kind == "LRANGE" and len((each.result or "").split()) > 40 and operation.is_known
    ]
    at, number, read = reads[len(reads) // 2]
    steps = list(history[at].steps)
    words = str(read.result).split()
    steps[number] = replace(read, result=" ".join([*words[:20], *words[21:]]))
    assert history[at].call_ns < last
    history[at] = replace(history[at], steps=tuple(steps))

    verdict = judge(history)

    assert verdict.word == "illegal"
    lines = verdict.text.splitlines()
    assert lines[0].startswith("illegal: key ")
    assert len(lines) < 60, verdict.text


# -- every order tried -----------------------------------------------------------------------------


def _has_order(history: Sequence[Operation]) -> bool:
    """By trying all of them, with and without each one of unknown outcome."""
    unknown = [each for each in history if not each.is_known]
    for count in range(len(unknown) + 1):
        for happens in itertools.combinations(unknown, count):
            done = [each for each in history if each.is_known or each in happens]
            if any(_explains(order) for order in itertools.permutations(done)):
                return True
    return False


def _explains(order: Sequence[Operation]) -> bool:
    store: Store = {}
    for at, each in enumerate(order):
        if any(late.end_ns is not None and late.end_ns < each.call_ns for late in order[at:]):
            return False
        for asked in each.steps:
            said = _apply(store, asked)
            if (each.is_known or asked.kind == "UNCHANGED") and said != asked.result:
                return False
    return True


def _small_history(chance: random.Random, name: str) -> list[Operation]:
    """A few transactions on few keys, answered by one store, then by chance answered wrong."""
    kept: list[Operation] = []
    history = _of_one_store(chance, count=chance.randrange(2, 6), keys=1)
    for each in history:
        end_ns = None if chance.random() < 0.15 else each.end_ns
        call_ns = each.call_ns - round(chance.choice((0, 0, 1e7)))
        kept.append(replace(each, call_ns=call_ns, end_ns=end_ns))
    said = [
        (at, number, each)
        for at, every in enumerate(kept)
        for number, each in enumerate(every.steps)
        if every.is_known and each.kind != "SET"
    ]
    if said and chance.random() < 0.7:
        at, number, wrong = chance.choice(said)
        alike = [each for _, _, each in said if (each.kind, each.key) == (wrong.kind, wrong.key)]
        steps = list(kept[at].steps)
        steps[number] = replace(wrong, result=chance.choice(alike).result)
        kept[at] = replace(kept[at], steps=tuple(steps))
    return [
        replace(each, steps=tuple(replace(one, key=f"{name}{one.key}") for one in each.steps))
        for each in kept
    ]


def test_small_histories_are_judged_as_trying_every_order_judges_them() -> None:
    chance = random.Random(1)
    sound: list[Operation] = []
    wrong: list[list[Operation]] = []
    for number in range(1500):
        history = _small_history(chance, f"h{number}")
        if _has_order(history):
            sound += history
        else:
            wrong.append(history)

    verdict = judge(sound)  # their keys are not the same: each is judged by itself
    assert verdict.word == "ok", verdict.text
    assert len(wrong) > 100
    for history in wrong[:150]:
        assert judge(history).word == "illegal", history
