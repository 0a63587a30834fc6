"""Guards callbacks of timers, links and turns: a defect in one ends its owner.

Otherwise the event loop would log the exception and go on without the master, whose next timer
would never be set.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")


class Failing(Protocol):
    """An owner that a defect ends."""

    def fail(self, error: BaseException) -> None:
        """Take a defect: write and send nothing more."""


_F = TypeVar("_F", bound=Failing)


def ends_with_a_defect(
    act: Callable[Concatenate[_F, _P], None],
) -> Callable[Concatenate[_F, _P], None]:
    """Wrap `act` so that an exception ends its owner."""

    @wraps(act)
    def guarded(owner: _F, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            act(owner, *args, **kwargs)
        except Exception as error:
            owner.fail(error)

    return guarded
