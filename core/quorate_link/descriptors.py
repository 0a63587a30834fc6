"""How many file descriptors this process may have open: sockets and files are counted alike."""

import logging
import resource

_log = logging.getLogger("quorate.descriptors")

LIMIT_MAX = 1 << 20
"""What Linux allows a process unless told otherwise; where the limit is none, this is asked for."""


def raise_limit() -> int:
    """Raise the soft limit to the hard one, as far as the system lets it; the limit from now on."""
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
