"""An agent with a planted defect: EXEC runs although what was watched has changed.

Stands as prefix before an agent's command line, from which it takes the arguments.  Who judges
histories of transactions must find the lost updates.
"""

import sys

from quorate_agent.resp import transaction

if __name__ == "__main__":
    transaction._has_changed = lambda view, watched: False  # the defect
    from quorate_agent.__main__ import main

    main(sys.argv[sys.argv.index("quorate_agent") + 1 :])
