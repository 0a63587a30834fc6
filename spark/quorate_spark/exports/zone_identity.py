"""The zone that agents have under a name: the one that is to be exported, or another one.

A Zone that is deleted and declared again has another uid, and other rows.  Agents of earlier builds
tell none.
"""

from quorate_spark.copies import Reading
from quorate_spark.reading.agent_link import Unreadable


def check_zone(reading: Reading, zone: str, uid: str) -> None:
    """Raise Unreadable if an agent has another zone of this name; `uid` empty: any will do."""
    others = sorted(reading.uids - {"", uid})
    if uid and others:
        raise Unreadable(
            f"zone {zone} is another one than this export was to be of: agents have the zone"
            f" {others[0]}, not {uid}: create another export"
        )


def unproved(reading: Reading, uid: str) -> str:
    """Return why it is not known that the rows are of the zone with this uid; empty: it is."""
    if not uid:
        return "no --zone-uid says of which zone they are"
    if reading.uids != {uid}:
        return "agents of an earlier version do not tell which zone they have: upgrade them"
    return ""
