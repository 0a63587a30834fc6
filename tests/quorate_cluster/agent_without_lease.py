"""An agent with a planted defect: a primary goes on answering after its lease is over.

Stands as prefix before an agent's command line, from which it takes the arguments.  A test that
looks for stale reads must find what this agent says while it is cut off.
"""

import sys
from typing import Any

from quorate.protocol.copies import shared_leases
from quorate.protocol.copies.primary import Primary
from quorate.protocol.copies.role_state import Stage

_NEVER_MS = 1 << 62


def _granted_for_ever(self: Primary, held_until: dict[str, int]) -> int:
    return _NEVER_MS if self.stage is Stage.SERVING else 0


if __name__ == "__main__":
    primary: Any = Primary  # whose methods nobody else replaces
    primary.granted_until = _granted_for_ever
    leases: Any = shared_leases
    leases.lease_end = lambda *_: _NEVER_MS
    from quorate_agent.__main__ import main

    main(sys.argv[sys.argv.index("quorate_agent") + 1 :])
