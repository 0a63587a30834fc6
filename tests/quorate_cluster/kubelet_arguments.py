"""Expands the arguments of a container as a kubelet does."""

import re
from collections.abc import Mapping, Sequence

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def expanded(arguments: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the arguments as the process gets them.

    `$(NAME)` is replaced by the variable if there is one, `$$` by `$`.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return "$"
        return env.get(found[1], found[0])

    return [_REFERENCE.sub(value, each) for each in arguments]
