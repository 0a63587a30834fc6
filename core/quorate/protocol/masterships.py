"""Which masterships agents have obeyed: how an agent knows that one is over, and how a master knows
that its metastore is an older copy.

A mastership is a number, counted up in the metastore, and a random word.  Two masterships have the
same number only when the metastore was put back to an older state, or made anew: the words tell.
Source: docs/protocol.md, section 7.
"""

from collections.abc import Mapping

from quorate.protocol.messages import Hello

WORDS_MAX = 100
"""Words of the latest masterships that a metastore keeps: agents that were away for longer than
that many changes of the master are judged by their rows alone."""


def why_not_obeyed(term: int, word: str, hello: Hello) -> str:
    """Why an agent that knows the mastership (term, word) must not obey the master that greets;
    empty when it may.  A word that is not known (an operator of before) says nothing."""
    if hello.master_term < term:
        return f"master term {hello.master_term} is over, {term} was seen"
    if hello.master_term == term and word and hello.master_word and hello.master_word != word:
        return (
            f"master term {term} was seen with another word ({word}, not {hello.master_word}): the "
            "metastore of the master that greets is an older copy, or another one"
        )
    return ""


def contradiction(words: Mapping[int, str], hello: Hello) -> str:
    """Why the agent that greets shows that this metastore is not the newest one it was led with;
    empty when it does not.  `words`: those that the metastore holds, by number."""
    known = words.get(hello.master_term)
    if known and hello.master_word and known != hello.master_word:
        return (
            f"agent {hello.node} obeyed a master in term {hello.master_term} "
            f"({hello.master_word}) that this metastore does not know (its own was {known})"
        )
    return ""
