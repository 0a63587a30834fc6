"""An agent with a planted defect: a write of the key `break` leaves its copy in a state that must
not exist.

Stands as prefix before an agent's command line, from which it takes the arguments.  A test of what
an agent does about a broken invariant needs one.
"""

import sys
from typing import Any

from quorate.protocol.copies.primary import Primary
from quorate.protocol.storage import Operation

_write = Primary.write


def _write_and_break(self: Primary, operations: tuple[Operation, ...]) -> int:
    counter = _write(self, operations)
    if any(key == b"break" for key, _, _ in operations):
        self.copy.log_from = counter + 1
    return counter


if __name__ == "__main__":
    primary: Any = Primary  # whose methods nobody else replaces
    primary.write = _write_and_break
    from quorate_agent.__main__ import main

    main(sys.argv[sys.argv.index("quorate_agent") + 1 :])
