"""Lists and shows rows that are set aside, as `kubectl quorate aside` does in an agent's pod.

It needs no packages but those of agents.
"""

import argparse
import os
import sys
from pathlib import Path

from quorate.facts.addresses import split_address
from quorate_cli.copies.agent_question import Asked
from quorate_cli.copies.aside_view import Found, Wanted, find_aside, print_list, print_rows
from quorate_cli.terminal.problem import Problem


def main(arguments: list[str]) -> int:
    """Run `list ZONE…` or `show ZONE PARTITION`; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m quorate_cli.aside_client")
    parser.add_argument("what", choices=("list", "show"))
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--secret-file", required=True, type=Path)
    parser.add_argument("--at", action="append", default=[], metavar="AGENT=HOST:PORT")
    parser.add_argument("--agent")
    parser.add_argument("--key")
    parser.add_argument("--differs", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    agents = [
        Asked(*split_address(address), given.cluster, name, given.secret_file)
        for name, _, address in (each.partition("=") for each in given.at)
    ]
    try:
        if given.what == "list":
            _list(agents, given.names, given.json)
        else:
            zone, partition = given.names
            key = os.fsencode(given.key) if given.key is not None else None
            wanted = Wanted(zone, int(partition), given.agent, key, given.differs)
            print_rows(agents, wanted, given.json)
    except Problem as problem:
        print(f"quorate: {problem}", file=sys.stderr)
        return 1
    return 0


def _list(agents: list[Asked], zones: list[str], as_json: bool) -> None:
    found: list[Found] = []
    unasked: dict[str, str] = {}
    for zone in zones:
        in_zone, silent = find_aside(agents, zone)
        found += in_zone
        unasked |= silent
    print_list(found, unasked, as_json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
