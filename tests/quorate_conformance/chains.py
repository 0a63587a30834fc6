"""Judges which link of a chain of assignments a partition goes on from after all restarted.

Ours departs in these: a position is the term of the last update, not an index, so a change of the
voters alone moves none; a link needs as many of those that the next one left as are in every
quorum; and nothing is erased: what a reset left is filled anew when it votes again.
"""

from collections.abc import Callable, Sequence

from quorate.facts.chain import awaited, left_by_links
from quorate.facts.partition_row import Link, Reset, majority
from quorate.facts.topology import Voter
from quorate_conformance.case_files import Case

_STORIES = {
    "stable_majority_alive": "an ordinary restart (test_resets, and the chance of the simulator)",
    "iep_use_case": "told in words: test_the_use_case_of_the_document in test_chains",
}


def judge_of(case: Case) -> Callable[[Case], None] | str | None:
    """The judge, or why there is none; None: the case is not about chains."""
    if case.section == "chain_lookup":
        return _last_links
    if case.section == "restart_decisions_seed_phase2":
        return _STORIES.get(case.name, _restart)
    return None


def _voters(nodes: Sequence[str]) -> tuple[Voter, ...]:
    return tuple(Voter(node, f"store-{node}") for node in nodes)


def _reset(chain: Sequence[Sequence[str]]) -> Reset:
    """The reset of a chain whose links ended in the terms 10, 20, …; its last link is the row."""
    *before, now = chain
    links = tuple(
        Link(10 * (at + 1), _voters(nodes), len(nodes) - majority(len(nodes)))
        for at, nodes in enumerate(before)
    )
    others = dict.fromkeys(node for nodes in before for node in nodes if node not in now)
    return Reset(links[-1].ended, _voters(tuple(others)), links)


def _last_links(case: Case) -> None:
    chain = case.facts["chain"]
    reset = _reset(chain)

    last = dict.fromkeys(chain[-1], len(chain) - 1)
    for link, nodes in left_by_links(reset, _voters(chain[-1])):
        last |= dict.fromkeys(nodes, reset.links.index(link))

    expected = case.facts["last_link_of"]
    assert {node: last.get(node) for node in expected} == expected


def _restart(case: Case) -> None:
    facts = case.facts
    chain, positions = facts["chain"], facts["last_user_index"]
    reset, now = _reset(chain), _voters(chain[-1])
    # Up to this index everything was written in the first link; above it, in the second.
    began = min(positions[node] for node in chain[-1])
    used = {
        node: 15 if node in chain[1] and index > began else 5 for node, index in positions.items()
    }
    expected = facts["expect"]["wait_for_majority_of"]
    heard = {node: term for node, term in used.items() if node not in expected or node in chain[-1]}
    majority = len(expected) // 2 + 1
    for node in [node for node in expected if node not in chain[-1]]:
        count = sum(other in expected for other in heard)
        assert bool(awaited(reset, now, heard)) == (count < majority), (node, heard)
        heard[node] = used[node]
    assert awaited(reset, now, heard) == ()
