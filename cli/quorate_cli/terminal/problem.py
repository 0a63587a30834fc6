"""What went wrong, in words for the person at the keyboard."""

import errno

from quorate.facts.errors import QuorateError

_RIGHTS = "run this as the user whose folder it is, or give another --folder"
_ROOM = "make room, or give another --folder"

WAY_OUT = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: _RIGHTS,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
}
"""What to do about a file that the system refuses, by errno: that is no defect of ours."""


class Problem(QuorateError):
    """Ends a command: names the object, the field, the value and the way out, without a traceback.

    `exit_code` is what the process ends with (1, or 2 where a check could not tell).
    """

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def words(error: OSError) -> str:
    """What the system said, without numbers and quotes."""
    return (error.strerror or str(error) or type(error).__name__).lower()
