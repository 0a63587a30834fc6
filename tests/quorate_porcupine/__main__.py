"""`make history-judge`: builds the program, says where it is; judges the history in a file."""

import sys
from pathlib import Path

from kept_builds import BuildError
from quorate_porcupine.build import build_judge
from quorate_porcupine.judge import judge_lines


def main() -> int:
    """Answer 0 when all is well, 1 otherwise."""
    try:
        program = build_judge(fetch_go=True)
    except BuildError as error:
        print(f"make history-judge: {error}", file=sys.stderr)
        return 1
    if len(sys.argv) == 1:
        print(program)
        return 0
    verdict = judge_lines(Path(sys.argv[1]).read_text())
    print(verdict.text)
    return 0 if verdict.is_linearizable else 1


if __name__ == "__main__":
    sys.exit(main())
