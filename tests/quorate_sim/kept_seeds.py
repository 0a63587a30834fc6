"""Seeds that failed once, each with what was mended: every run of the tests replays them.

What a number draws changes when the simulator draws something more, so that a seed kept here need
not come to the same place for ever.  A story without chance does: each defect of the product has
one in tests/scenarios/test_past_defects.py, or a test of the unit that had it.
"""

KEPT = {
    486: "a reduction was cancelled and begun again: the target named only the node that lost it",
    7340074: "I-1 of a step whose destination lost its disk while the write was on its way",
    7340173: "I-1 by a registration that a former master wrote late; those are read again now",
    7340345: "a write waited for the next one where a store was gone and the last Acks lost",
    7341122: "a disk was taken while another machine lacked what Interval had not synced",
    31000636: "a zone was deleted while copies were missing: the master decided nothing more",
    31000503: "the cluster was taken for at rest while a store that was gone still had a vote",
    31001343: "who had said that it leaves was stopped after the faults, and its memory lost",
    31001427: "as 7341122",
    31001450: "two stores of one machine had one name in the check of tombstones",
    31002353: "as 7340074",
    31003043: "as 31001343",
    31007055: "as 7340173, in memory",
    31011572: "as 31000636",
    60001916: "a master that had been followed wrote the record of a deleted zone again",
    60002340: "as 60001916",
    60003154: "a home took a coordinator that it had not heard of for one that had ended",
    60001672: "a master ended where an agent only found its number too high to believe",
    1124000970: "a copy asked the second of two suppliers for ever, which had nothing",
    1124001378: "a rebuilt row that waited was written over one that another master had stored",
    1124001735: "a row rebuilt for the second time had the version of one that was lost again",
    1124500811: "rows of the first placement that came late were waited for from agents instead",
    1124717709: "a rebuilt row had a newcomer among its voters that lacked what was answered",
    1125101540: "a copy that was left of both sides of a migration was no quorum of all voters",
    1125451344: "the last master was overtaken after the faults, and no other began",
    1124001976: "a master that had been followed wrote the rows of a deleted zone again",
    1124716981: "the metastore was lost where all voters of a told migration's new side were gone",
    1124722231: "an agent's word of a row that does not name it was judged as word of the next one",
    7319139: "a position that a refused batch had set back was taken for told, at rest",
    7319163: "a zone that wrote a long value ahead claimed to have nothing to do",
    58428691735: "a primary stayed on a node that leaves: nobody else was reached for a moment",
    5600000005427: "a zone rested over a copy that had missed more while it was repaired",
    5600000031283: "as 5600000005427, ten seconds late",
    5600000014101: "the only agent that had heard of a master lost its disk before a thousand more",
    5600000079587: "I-5 by the row that the primary knew; a voter had left with the next one",
    2273577650135: "as 5600000079587",
    5600000057628: "a batch that found no room took the copy's list of tombstones with it",
    5600000059656: "as 5600000057628",
    5600000073702: "a copy too many was dropped although another's store was gone meanwhile",
}
