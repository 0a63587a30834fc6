"""An agent whose container has this file for its termination message.

Stands as prefix before an agent's command line, from which it takes the arguments.
"""

import sys
from pathlib import Path

from quorate_agent.process import last_word

if __name__ == "__main__":
    last_word.TERMINATION_LOG = Path(sys.argv[1])
    from quorate_agent.__main__ import main

    main(sys.argv[sys.argv.index("quorate_agent") + 1 :])
