"""What went wrong, in words for the person at the keyboard."""

from quorate.facts.errors import QuorateError


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
