"""The kinds of error the core knows.

Expected outcomes (stale, busy, late) are values, never exceptions.  What remains is bad input,
raised at a gate, and the impossible, which stops a zone before anything is written.
"""


class QuorateError(Exception):
    """Base of everything this project raises on purpose."""


class WireError(QuorateError):
    """Input from outside that cannot become a value: names object, field, value and way out."""


class InvariantError(QuorateError):
    """A state that must not exist.  Never caught inside the core; the shell writes nothing."""
