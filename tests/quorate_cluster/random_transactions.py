"""Clients whose transactions and commands all use the same few keys, and the history of it.

Keys come in groups of registers, lists and accounts.  Each transaction stays in one group, so that
each group is judged by itself; a group is given up for a fresh one before its history gets long.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from quorate_cluster.background import Background
from quorate_cluster.cluster import Cluster
from quorate_cluster.slot_client import Exchange, NothingDone, SlotClient, Unknown
from quorate_porcupine.operations import Operation, Step, transaction

_TIMEOUTS_S = (0.4, 0.4, 12)
"""Clients by turns: two soon ask elsewhere, one hears what a frozen agent says when it thaws."""
_UNKNOWN_MAX = 4
_USES_MAX = 500
"""A group is given up after so many writes of unknown outcome, and after so many uses: the search
for an order tries the former at every later moment, and lists get long."""

_REGISTERS = 3
_LISTS = 2
_ACCOUNTS = 3

KeyName = Callable[[str, str], str]
"""Where a group's key lies, by the names of both."""


def in_one_slot(group: str, name: str) -> str:
    """All keys of a group in one slot."""
    return f"{{{group}}}{name}"


def in_any_slots(group: str, name: str) -> str:
    """The keys of a group in partitions that have nothing to do with each other."""
    return f"{group}-{name}"


class _Group:
    """One group in its present life."""

    def __init__(self, name: str, key_name: KeyName) -> None:
        self._name = name
        self._key_name = key_name
        self._life = 0
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._uses = self._unknown = 0
        named = partial(self._key_name, f"{self._name}.{self._life}")
        self.registers = [named(f"register{number}") for number in range(_REGISTERS)]
        self.lists = [named(f"list{number}") for number in range(_LISTS)]
        self.accounts = [named(f"account{number}") for number in range(_ACCOUNTS)]

    def count(self, *, is_unknown: bool) -> None:
        with self._lock:
            self._uses += 1
            self._unknown += is_unknown
            if self._uses == _USES_MAX or self._unknown == _UNKNOWN_MAX:
                self._life += 1
                self._begin()


class RandomTransactions(Background):
    """`with RandomTransactions(cluster, zone) as load:` runs transactions until its end.

    Of one to four commands; transfers between accounts, whose sum is always 0, and reads of all
    accounts; registers that are watched, read and written; commands by themselves.  Nothing is
    asked twice.  `key_name` says whether the keys of a transaction are of one slot.  `seed` tells
    keys and values of histories apart.
    """

    def __init__(
        self,
        cluster: Cluster,
        zone: str,
        *,
        clients: int = 9,
        groups: int = 3,
        key_name: KeyName = in_one_slot,
        pause_s: float = 0.01,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.history: list[Operation] = []
        self.sums: set[int] = set()
        self.committed = 0
        """Transactions known to have happened,"""
        self.aborted = 0
        """and those that nothing was done of, for what was watched had changed."""
        self.refused: Counter[str] = Counter()
        self._cluster = cluster
        self._zone = zone
        self._groups = [_Group(f"g{seed}-{number}", key_name) for number in range(groups)]
        self._pause_s = pause_s
        self._seed = seed
        for number in range(clients):
            self.add_road(partial(self._run, number))

    @property
    def unknown(self) -> int:
        """Operations so far whose outcome no client knows."""
        return sum(not operation.is_known for operation in self.history)

    # -- one thread --------------------------------------------------------------------------------

    def _run(self, number: int) -> None:
        chance = random.Random(f"{self._seed}-{number}")
        ports = [port for _, port in self._cluster.endpoints(self._zone)]
        chance.shuffle(ports)  # not all of them believe the same agent
        client = SlotClient(ports, _TIMEOUTS_S[number % 3])
        count = 0
        try:
            while not self.stop.wait(self._pause_s * chance.random() * 2):
                count += 1
                group = chance.choice(self._groups)
                request = _Request(self, client, number, group, chance, f"c{number}-{count}")
                try:
                    request.run()
                except NothingDone as error:
                    self.refused[str(error).partition(" ")[0]] += 1
        finally:
            client.close()


class _Request:
    """What one client does at a time: a transaction, or one command."""

    def __init__(
        self,
        load: RandomTransactions,
        client: SlotClient,
        number: int,
        group: _Group,
        chance: random.Random,
        value: str,
    ) -> None:
        self._load = load
        self._client = client
        self._number = number
        self._group = group
        self._registers, self._lists, self._accounts = group.registers, group.lists, group.accounts
        self._chance = chance
        self._value = value

    def run(self) -> None:
        match self._chance.choice("aaattsgggcc"):
            case "a":
                self._execute(self._any_steps())
            case "t":
                self._transfer()
            case "s":
                self._add_up()
            case "g":
                self._guarded()
            case _:
                self._ask(self._any_steps()[0])

    def _any_steps(self) -> list[Step]:
        return [self._any_step(number) for number in range(self._chance.randrange(1, 5))]

    def _any_step(self, number: int) -> Step:
        value = f"{self._value}-{number}"
        kind = self._chance.choice(
            ("GET", "GET", "SET", "SET", "DEL", "RPUSH", "RPUSH", "LRANGE", "LRANGE")
        )
        keys = self._lists if kind in ("RPUSH", "LRANGE") else self._registers
        key = self._chance.choice(keys)
        return Step(kind, key, value if kind in ("SET", "RPUSH") else None)

    def _transfer(self) -> None:
        giver, taker = self._chance.sample(self._accounts, 2)
        amount = self._chance.randrange(1, 10)
        self._execute([Step("INCRBY", giver, str(-amount)), Step("INCRBY", taker, str(amount))])

    def _add_up(self) -> None:
        found = self._execute([Step("GET", account) for account in self._accounts])
        if found is not None:
            self._load.sums.add(sum(int(each.result or "0") for each in found))

    def _guarded(self) -> None:
        """Write registers if they hold what they did when they were read."""
        first, second = self._chance.sample(self._registers, 2)
        with self._client.watching([first, second]) as exchange:
            guards = []
            for key in (first, second):
                seen = self._ask(Step("GET", key))
                if seen is None:
                    return
                guards.append(Step("UNCHANGED", key, None, seen.result))
            steps = [Step("SET", first, self._value)]
            if self._chance.random() < 0.7:
                steps.append(Step("SET", second, self._value))
            steps.append(Step("RPUSH", self._lists[0], self._value))
            self._execute(steps, guards, exchange)

    # -- asking and noting -------------------------------------------------------------------------

    def _ask(self, step: Step) -> Step | None:
        """One command by itself; None when nobody knows."""
        call_ns = time.monotonic_ns()
        try:
            result = _text(self._client.ask(step.key, [_words(step)])[0])
        except Unknown:
            self._note(Operation(*self._of(step), None, call_ns, None))
            return None
        end_ns = time.monotonic_ns()
        self._note(Operation(*self._of(step), result, call_ns, end_ns))
        return Step(step.kind, step.key, step.argument, result)

    def _of(self, step: Step) -> tuple[int, str, str, str | None]:
        return self._number, step.kind, step.key, step.argument

    def _execute(
        self, steps: Sequence[Step], guards: Sequence[Step] = (), exchange: Exchange | None = None
    ) -> list[Step] | None:
        """A transaction at the agent of its first key, or by `exchange`, where it is guarded; None
        when it was not done, or when nobody knows."""
        exchange = exchange or partial(self._client.ask, steps[0].key)
        call_ns = time.monotonic_ns()
        try:
            answers = exchange([("MULTI",), *map(_words, steps), ("EXEC",)])[-1]
        except Unknown:
            self._note(transaction(self._number, [*guards, *steps], call_ns))
            return None
        end_ns = time.monotonic_ns()
        if answers is None:
            self._load.aborted += 1
            return None
        assert isinstance(answers, list), answers
        done = [
            Step(step.kind, step.key, step.argument, _text(answer))
            for step, answer in zip(steps, answers, strict=True)
        ]
        self._load.committed += 1
        self._note(transaction(self._number, [*guards, *done], call_ns, end_ns))
        return done

    def _note(self, operation: Operation) -> None:
        kinds = {step.kind for step in operation.steps} or {operation.kind}
        is_unknown = not operation.is_known
        if is_unknown and kinds <= {"GET", "LRANGE"}:
            return  # it says nothing
        self._load.history.append(operation)
        self._group.count(is_unknown=is_unknown)


def _words(step: Step) -> tuple[str, ...]:
    if step.kind == "LRANGE":
        return "LRANGE", step.key, "0", "-1"
    return (step.kind, step.key) if step.argument is None else (step.kind, step.key, step.argument)


def _text(answer: object) -> str | None:
    match answer:
        case None:
            return None
        case bytes():
            return answer.decode()
        case int():
            return str(answer)
        case list():
            return " ".join(str(_text(each)) for each in answer)
        case _:
            raise AssertionError(f"a command of a transaction was answered {answer!r}")
