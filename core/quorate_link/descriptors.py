"""The limit of open file descriptors of this process (sockets and files count alike)."""

import logging
import resource

_log = logging.getLogger("quorate.descriptors")

LIMIT_MAX = 1 << 20
"""The most that Linux allows a process by default. It is asked for if the hard limit is
infinite."""


def raise_limit() -> int:
    """Raise the soft limit to the hard one, if the system permits it. Return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = LIMIT_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            _log.warning("descriptors: the limit stays at %d: %s", soft, error)
            return soft
        _log.info("descriptors: limit raised from %d to %d", soft, wanted)
    return wanted
