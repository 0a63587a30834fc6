"""Commands and outputs out of a document, and how an output is compared."""

import os
from pathlib import Path

import pytest

from quorate_documented.commands import Command, commands_of, first_missing, run

DOCUMENT = """# A document

```sh
one --flag \\
  --more
# a comment

two <<END
# this belongs to it
END
three   # behind a command
```

```text
NAME  …
```

```yaml
not: a command
```

```sh
four
```

Words between.

```text
of nobody
```
"""


def test_commands_are_whole_and_know_their_output() -> None:
    assert commands_of(DOCUMENT) == [
        Command(4, "one --flag \\\n  --more"),
        Command(8, "two <<END\n# this belongs to it\nEND"),
        Command(11, "three   # behind a command", ("NAME  …",)),
        Command(23, "four"),
    ]


def test_output_is_compared_line_by_line_in_order() -> None:
    printed = "NAME   AGE\nlibrary  17s\nend\n"

    assert first_missing(["NAME AGE", "library …s"], printed) == ""
    assert first_missing(["…", "…", "end"], printed) == ""
    assert first_missing(["library …", "NAME AGE"], printed) == "NAME AGE"
    assert first_missing(["library"], printed) == "library"


def test_a_command_that_fails_or_prints_another_thing_is_named(tmp_path: Path) -> None:
    assert run(Command(1, "echo one; echo two", ("two",)), tmp_path, os.environ) == "one\ntwo\n"
    with pytest.raises(AssertionError, match="line 7: false"):
        run(Command(7, "false"), tmp_path, os.environ)
    with pytest.raises(AssertionError, match="did not print:\nthree"):
        run(Command(1, "echo one", ("three",)), tmp_path, os.environ)
