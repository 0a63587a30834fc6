"""Decides which mastership an agent obeys; detects an old one, or two with the same number.

A mastership is a number, counted up in the metastore, and a random word.  Two masterships have the
same number only if the metastore was put back to an older state or made anew; then their words
differ.  Words do not tell which metastore is older; its rows do (Master.looked_again).  A refused
master counts again, above what the agent knows.  Source: docs/protocol.md, section 7.
"""

from typing import Final

from quorate.facts.errors import QuorateError
from quorate.protocol.messages.handshake import Hello, RefusalCode

TERMS_BELIEVED: Final = 1_000
"""How far a master's term may be above all terms that an agent has heard of.

Terms are counted one by one.  A much higher one comes from a counter that was raised by a defect or
a wrong copy, and an agent that obeys it refuses every later master.  A term that another agent has
obeyed is believed, because that agent refuses all lower ones anyway.  A master that is refused for
this sends Greet to the agents that obey it.  They greet the agent that refused, and these
greetings, proven as an agent's, tell which mastership they have durably obeyed.
"""
RECOVERY_TERMS: Final = 500
"""How far above the highest reported term the masterships of a lost metastore continue.

It is well below TERMS_BELIEVED, and above the masterships that absent agents may know.  If an agent
knows more, it refuses, and the next mastership is counted above that.
"""

ENDS_PART: Final = frozenset(
    {RefusalCode.NAME_IN_USE, RefusalCode.COPIED_FOLDER, RefusalCode.OLDER_PROCESS}
)
"""A master's refusals by which another process has the agent's name, or its folder."""


class MastershipNotKept(QuorateError):
    """A higher mastership cannot be made durable now, so its master is not obeyed; says why."""


def is_obeyed_refusal(term: int, word: str, hello: Hello) -> bool:
    """Return whether a refusal has an effect on an agent that knows the mastership (term, word).

    Only that of a master has which the agent may obey.
    """
    return hello.role == "master" and not why_not_obeyed(term, word, hello)


def why_not_obeyed(term: int, word: str, hello: Hello) -> str:
    """Return why an agent that knows the mastership (term, word) must not obey this master.

    The result is empty if it may obey.  A missing word (an operator of an older version) does not
    count.
    """
    if hello.master_term < term:
        return f"master term {hello.master_term} has ended: term {term} was seen"
    if hello.master_term == term and word and hello.master_word and hello.master_word != word:
        return f"master term {term} is another master's ({word}, not {hello.master_word})"
    return ""


def why_not_believed(heard: int, term: int) -> str:
    """Return why a master's term is too far above `heard` to be true.

    `heard` is the highest term that the agent has obeyed or heard of from other agents.  The result
    is empty if the term is credible, or if nothing was heard yet.
    """
    if not heard or term <= heard + TERMS_BELIEVED:
        return ""
    return (
        f"master term {term} is not believed: it is more than {TERMS_BELIEVED} above"
        f" {heard}, the highest term that this agent knows, also from other agents. Way out: start"
        " an agent that has obeyed it; if no such agent is left and there really were so many"
        f" masterships, start this agent once with --believe-term {term}; otherwise restore"
        " the counter of the operator's metastore (on Kubernetes also master.term in the"
        " StorageCluster's status, from which terms continue if the counter is missing)"
    )
