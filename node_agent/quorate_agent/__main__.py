"""`quorate-agent`: what runs before the rest of the agent is imported (process/process.py)."""

import gc
import sys

from quorate_agent.machine.huge_pages import use_huge_pages
from quorate_agent.process.early_end import end_at_once_when_told

if not __debug__:
    sys.exit("quorate-agent: -O removes checks that keep data safe; start Python without -O")


def main(arguments: list[str] | None = None) -> None:
    """Run the agent until it is told to stop; `arguments` replace this process's command line."""
    if arguments is None:
        use_huge_pages()
    end_at_once_when_told()
    gc.disable()  # imports leave no garbage, and looking for it is a tenth of their time
    from quorate_agent.process import process  # importing this takes a second or more

    gc.enable()
    process.main(arguments)


if __name__ == "__main__":
    main()
