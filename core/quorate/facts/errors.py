"""The errors of the core.

Expected outcomes (stale, busy, late) are values, never exceptions. Exceptions are raised for bad
input, where it enters, and for impossible states, which stop the process before it writes anything.
"""

import errno

NO_RIGHTS = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The system's numbers for a file that this user may not read or write."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""The system's numbers for a disk or a quota that is full."""


class QuorateError(Exception):
    """Base class of every exception that this project raises on purpose."""


class WireError(QuorateError):
    """Input from outside that is not valid: names the object, field, value and way out."""


class InvariantError(QuorateError):
    """A state that must not exist. The core never catches it; the shell then writes nothing."""
