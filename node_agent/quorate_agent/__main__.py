"""`quorate-agent`: the first moments of an agent process; all others are process.py's."""

import sys

from quorate_agent.machine.huge_pages import use_huge_pages
from quorate_agent.process.early_end import end_at_once_when_told

if not __debug__:
    sys.exit("quorate-agent: -O removes checks that keep data safe; start Python without -O")


def main(arguments: list[str] | None = None) -> None:
    """Run until told to stop.  `arguments`: in place of this process's own."""
    if arguments is None:
        use_huge_pages()
    end_at_once_when_told()
    from quorate_agent.process import process  # takes a second or more

    process.main(arguments)


if __name__ == "__main__":
    main()
