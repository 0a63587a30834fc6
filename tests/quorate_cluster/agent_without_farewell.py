"""An agent with a planted defect: it does not tell clients of keys that it will not hear of again.

Stands as prefix before an agent's command line, from which it takes the arguments.  A test of what
clients are told must find what they keep of partitions that have gone.
"""

import sys
from typing import Any

from quorate_agent.notices.tracking import Tracking


def _end_in_silence(self: Tracking, partition: int) -> None:
    self._watched.pop(partition).role.changed = None


if __name__ == "__main__":
    tracking: Any = Tracking  # whose methods nobody else replaces
    tracking._end = _end_in_silence
    from quorate_agent.__main__ import main

    main(sys.argv[sys.argv.index("quorate_agent") + 1 :])
