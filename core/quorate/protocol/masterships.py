"""Which mastership an agent obeys: how it knows that one is over, or that two have the same number.

A mastership is a number, counted up in the metastore, and a random word.  Two masterships have the
same number only when the metastore was put back to an older state, or made anew: the words tell.
Words say nothing of how old a metastore is: that its rows say (Master.looked_again).  A master that
is refused counts again, above what the agent knows.  Source: docs/protocol.md, section 7.
"""

from quorate.protocol.messages import Hello


def why_not_obeyed(term: int, word: str, hello: Hello) -> str:
    """Why an agent that knows the mastership (term, word) must not obey the master that greets;
    empty when it may.  A word that is not known (an operator of before) says nothing."""
    if hello.master_term < term:
        return f"master term {hello.master_term} is over, {term} was seen"
    if hello.master_term == term and word and hello.master_word and hello.master_word != word:
        return f"another master led in master term {term} ({word}, not {hello.master_word})"
    return ""
