"""Which mastership an agent obeys: how it knows that one is over, or that two have the same number.

A mastership is a number, counted up in the metastore, and a random word.  Two masterships have the
same number only when the metastore was put back to an older state, or made anew: the words tell.
Words say nothing of how old a metastore is: that its rows say (Master.looked_again).  A master that
is refused counts again, above what the agent knows.  Source: docs/protocol.md, section 7.
"""

from typing import Final

from quorate.protocol.messages.handshake import Hello

TERMS_BELIEVED: Final = 1_000
"""How far above all that an agent has heard of a master's term may be.  Terms are counted one by
one; a higher one comes from a counter that a defect or a wrong copy has raised, and whoever obeys
it refuses every later master.  What another agent has obeyed is believed: it refuses all below
that anyway.  A master that is refused for this has the agents that obey it greet the one that does
not (Greet); their greetings, proven as agents', tell what they have durably obeyed."""
RECOVERY_TERMS: Final = 500
"""How far above the highest term that was told a lost metastore goes on: well below that bound, and
above the masterships that agents may know which are away; those of an agent that knows more are
counted above when it refuses."""


def why_not_obeyed(term: int, word: str, hello: Hello) -> str:
    """Why an agent that knows the mastership (term, word) must not obey the master that greets;
    empty when it may.  A word that is not known (an operator of before) says nothing."""
    if hello.master_term < term:
        return f"master term {hello.master_term} is over, {term} was seen"
    if hello.master_term == term and word and hello.master_word and hello.master_word != word:
        return f"another master led in master term {term} ({word}, not {hello.master_word})"
    return ""


def why_not_believed(heard: int, term: int) -> str:
    """Why a master's term is too far above `heard`, the highest one that an agent has obeyed or
    heard of from other agents, to be true; empty when it is not, or nothing was heard yet."""
    if not heard or term <= heard + TERMS_BELIEVED:
        return ""
    return (
        f"master term {term} is not believed: it is more than {TERMS_BELIEVED} above"
        f" {heard}, the highest that this agent has heard of, from other agents too. Way out: start"
        " an agent that has obeyed it; if there were so many masterships and no such agent is left,"
        f" start this one once with --believe-term {term}; else put"
        " back the counter of the operator's metastore (on Kubernetes master.term in the"
        " StorageCluster's status too: terms are counted on from there where the counter"
        " is missing)"
    )
