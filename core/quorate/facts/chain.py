"""The link of a chain of resets from which a partition goes on after all its copies restarted.

Source: IEP-131, phase 2; docs/protocol.md, section 7, "After a restart of all".
"""

from collections.abc import Iterator, Mapping

from quorate.facts.partition_row import Link, Reset
from quorate.facts.topology import Voter


def awaited(reset: Reset, now: tuple[Voter, ...], used: Mapping[str, int]) -> tuple[str, ...]:
    """Return nodes that a reset left, of which more must say what they hold; empty: none.

    The history goes on from the last link in which something was written. So links are gone
    through from the newest to the oldest. Of each, `Link.needed` of those whose last link it is
    must have been heard; those with a later link may have dropped what they had. If a copy that was
    heard has an update of a later term, older links need not be asked.

    - `now`: the row's present voters
    - `used`: the last term in which something was written, by node, of all that were heard
    """
    newest = max(used.values(), default=0)
    for link, left in left_by_links(reset, now):
        if newest >= link.ended:
            return ()
        needed = min(link.needed, len(left))
        missing = tuple(node for node in left if node not in used)
        if len(left) - len(missing) < needed:
            return missing
    return ()


def left_by_links(reset: Reset, now: tuple[Voter, ...]) -> Iterator[tuple[Link, list[str]]]:
    """Yield each link, from the newest to the oldest, with the nodes of which it is the last one.

    These are voters of no later link, nor `now`, whose stores still keep what they had.
    """
    others, later = {*reset.others}, {voter.node for voter in now}
    for link in reversed(reset.links):
        yield link, [v.node for v in link.voters if v in others and v.node not in later]
        later |= {voter.node for voter in link.voters}
