"""Errors as sentences for the user."""

from quorate.facts.errors import NO_RIGHTS, NO_ROOM, QuorateError

_RIGHTS = "run this as the owner of the folder, or name another folder with --folder"
_ROOM = "free some space, or name another folder with --folder"

WAY_OUT = dict.fromkeys(NO_RIGHTS, _RIGHTS) | dict.fromkeys(NO_ROOM, _ROOM)
"""Way out for a file that the system refuses, by errno: such an error is no defect of ours."""


class Problem(QuorateError):
    """Ends a command with a sentence and no traceback.

    The sentence names the object, the field, the value and the way out.  `exit_code`: of the
    process: 1, or 2 if a check could not tell.
    """

    def __init__(self, sentence: str, exit_code: int = 1) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def words(error: OSError) -> str:
    """Return the system's message without numbers and quotes."""
    return (error.strerror or str(error) or type(error).__name__).lower()
