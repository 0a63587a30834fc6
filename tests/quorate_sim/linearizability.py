"""Whether one key's history could have happened one command at a time (Wing and Gong's search).

Every answered command took effect at one moment between its sending and its answer; one of unknown
outcome took effect at one moment after its sending, or never.  Keys are independent, so each key's
history is searched alone; a state already seen with the same set of commands done is not searched
again.
"""

from typing import NamedTuple


class Call(NamedTuple):
    """One command on one key.  `end` None: the outcome is unknown; `result` counts only else."""

    start: int
    end: int | None
    kind: str
    value: bytes | None
    result: bytes | None
    name: str


def _effect(call: Call, state: bytes | None) -> tuple[bool, bytes | None]:
    """Whether the answer fits the state, and the state after it."""
    known = call.end is not None
    match call.kind:
        case "get":
            return (not known or call.result == state), state
        case "set":
            return True, call.value
        case "del":
            return (not known or call.result == (b"0" if state is None else b"1")), None
        case "incr":
            if state is not None and not state.isdigit():
                return False, state
            after = b"%d" % (int(state or b"0") + 1)
            return (not known or call.result == after), after
        case "set if absent":
            if state is not None:
                return (not known or call.result is None), state
            return (not known or call.result == b"OK"), call.value
        case "get and delete":
            return (not known or call.result == state), None
        case "append":
            after = (state or b"") + (call.value or b"")
            return (not known or call.result == b"%d" % len(after)), after
        case "flush":
            return True, None
        case other:
            raise ValueError(other)


_WHOLE_VALUES = {"get", "set", "del", "set if absent", "get and delete", "flush"}
"""Commands that use a value as a whole, or only whether there is one."""
_REMOVING = {"del", "get and delete", "flush"}
_UNSEEN = b"(never read)"


def _with_seen_values(calls: list[Call], first: bytes | None) -> tuple[list[Call], bytes | None]:
    """The calls, and the first value, with one value for all that no answer shows.

    They differ for nobody, so the search need not tell them apart.
    """
    if not {call.kind for call in calls} <= _WHOLE_VALUES:
        return calls, first
    seen = {None, *(call.result for call in calls if call.end is not None)}
    alike = [
        call
        if call.value in seen or call.kind not in ("set", "set if absent")
        else call._replace(value=_UNSEEN)
        for call in calls
    ]
    return alike, first if first in seen else _UNSEEN


class TooHard(Exception):
    """The search was given up: nothing is known."""


def check_key(calls: list[Call], first: bytes | None = None, bound: int = 400_000) -> list[Call]:
    """The longest order found that explains answered calls; all of them when it is linearizable.

    Answers the answered calls that no order explains: empty when the history is fine.
    """
    calls = sorted(calls, key=lambda call: (call.start, call.end is None, call.end or 0))
    told = calls
    calls, first = _with_seen_values(calls, first)
    must = 0
    for index, call in enumerate(calls):
        if call.end is not None:
            must |= 1 << index
    ends = [call.end for call in calls]
    seen: set[tuple[int, bytes | None]] = set()
    stack: list[tuple[int, int, bytes | None]] = [(0, 0, first)]
    best = 0
    steps = 0
    while stack:
        done, low, state = stack.pop()
        if done & must == must:
            return []
        if (done, state) in seen:
            continue
        seen.add((done, state))
        steps += 1
        if steps > bound:
            raise TooHard(f"{len(calls)} calls: more than {bound} states")
        if (done & must).bit_count() > (best & must).bit_count():
            best = done
        while done >> low & 1:
            low += 1
        # A call may be next when no other call that is not done ended before it started.
        earliest: int | None = None
        choices: list[tuple[int, int, bytes | None]] = []
        alike: set[tuple[str, bytes | None]] = set()
        for index in range(low, len(calls)):
            call = calls[index]
            if earliest is not None and call.start > earliest:
                break
            if done >> index & 1:
                continue
            end = ends[index]
            if end is not None and (earliest is None or end < earliest):
                earliest = end
            fits, after = _effect(call, state)
            if end is None:
                # Of alike calls the earliest will do, and one without an effect may be left out.
                effect = ("del", None) if call.kind in _REMOVING else (call.kind, call.value)
                if after == state or effect in alike:
                    continue
                alike.add(effect)
            if fits:
                choices.append((done | 1 << index, low, after))
        # Answered calls first, early ends first: unknown outcomes are rarely needed.
        choices.sort(key=lambda choice: bool(choice[0] & ~done & must))
        stack += choices
    return [call for index, call in enumerate(told) if must >> index & 1 and not best >> index & 1]
