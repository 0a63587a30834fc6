"""LOST partitions that a person has begin again without data. docs/protocol.md, section 7."""

from quorate.facts.time import Now
from quorate.facts.topology import Voter
from quorate.protocol.master.decisions.verdict import IS_CHANGING, Verdict, verb
from quorate.protocol.zone_master.partition_state import PartitionState
from quorate.protocol.zone_master.zone_master import ZoneMaster


def judge_reopening(zone: ZoneMaster, part: PartitionState, dry_run: bool, now: Now) -> Verdict:
    """Return the row over empty stores, unless a copy of the partition may still exist."""
    row, nodes = part.row, zone.nodes
    stores = [*dict.fromkeys(v for each in row.voter_sets for v in each), *row.left_by_reset]
    kept = [store for store in stores if not nodes.is_dead(store)]
    if kept:
        told = ", ".join(f"{store.node} {_whereabouts(zone, store)}" for store in kept)
        return Verdict(
            f"not all of its copies are gone for good: {told}; start those that are away, and one"
            " whose data no longer exists with an empty folder"
        )
    if not zone.empty_start.is_free(part) or zone.is_changing(row.partition):
        return Verdict(IS_CHANGING)
    if zone.resets.is_new(now):
        return Verdict("the operator has only begun to lead: try again in a few seconds")
    missing = zone.empty_start.not_heard()
    if missing:
        return Verdict(
            f"agents that may know a newer row of it have not told what they have: start or remove"
            f" {', '.join(missing)}"
        )
    wanted = zone.target[row.partition] if zone.target is not None else ()
    change = zone.empty_start.change(row, wanted)
    if change is None:
        return Verdict(f"no agent that is to hold it is there: start {', '.join(wanted) or 'some'}")
    gone = ", ".join(f"{store.node} (store {store.store})" for store in stores)
    begins = verb(dry_run, "begin", "begins")
    return Verdict(
        sentence=f"every store that had it is gone for good: {gone}; it {begins} again without data"
        f" on {', '.join(change[0].owners)}: all that it held is lost, and what agents set aside"
        " of it can no longer be put back",
        change=change,
    )


def _whereabouts(zone: ZoneMaster, store: Voter) -> str:
    """Return why the copy in this store may exist."""
    if zone.nodes.voter_holder(store) is not None:
        return "is there"
    refusal = zone.nodes.refusal(store.node)
    if refusal is not None:
        return f"refuses the zone ({refusal.reason})"
    if not zone.nodes.is_registered(store.node):
        return "is not registered"
    return "is away"
