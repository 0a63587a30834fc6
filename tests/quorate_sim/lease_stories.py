"""Stories of a primary that is cut off under its lease: its successor must wait that long."""

import msgspec

from quorate.protocol.messages.master import CaughtUp, PreparedRow
from quorate.protocol.messages.message import Message
from quorate_sim.network import Link, Process
from quorate_sim.scenario import SETTINGS, Scenario

LONG_LEASES = msgspec.structs.replace(SETTINGS, lease_ms=3000)
"""A primary that is cut off has its lease for two seconds after its successor is elected."""


def a_voter_that_restarts_reports_the_lease_it_has_forgotten() -> None:
    """The primary has the lease of one backup only, which then restarts; the other backup's lease
    is over.  The restarted one does not remember what it granted."""
    story = Scenario(settings=LONG_LEASES)
    old = story.primary
    (grantor, other) = story.backups()
    story.written(old, b"x", b"0")
    story.cut(old, off=(other,))
    story.run(LONG_LEASES.lease_ms)
    assert story.serves(old), "the grantor's lease is enough"

    story.cut(old)
    story.crash(grantor)
    story.start(grantor)
    _is_followed_safely(story, old)


def a_lease_in_joint_mode_needs_the_new_voters_too() -> None:
    """A backup is being replaced.  The primary and that backup are cut off from the newcomer, the
    other backup and the master; then the migration is committed, and the new voters go on."""
    story = Scenario()
    old = story.primary
    (_, leaver) = story.backups()
    story.written(old, b"x", b"0")
    story.add("a4")
    caught_up: list[str] = []

    def judge(link: Link, sender: Process, receiver: Process, message: Message) -> int:
        """The migration is not committed yet."""
        if isinstance(message, CaughtUp):
            caught_up.append(sender.name)
        return 0 if isinstance(message, PreparedRow) else 1

    story.cluster.network.judge = judge
    story.drain(leaver)
    story.wait(lambda: old in caught_up, "the primary is in joint mode")
    story.run(100)

    story.cut(old, leaver)
    story.cluster.network.judge = None
    story.wait(lambda: story.row.active is None, "the migration is committed")
    assert leaver not in story.row.voter_nodes
    _is_followed_safely(story, old)


def _is_followed_safely(story: Scenario, old: str) -> None:
    """When another primary serves, the old one answers no read."""
    new = story.wait_for_primary(old)
    story.written(new, b"x", b"1")
    stale = story.cluster.clients.send_to(story.agent(old), "get", b"x")
    story.wait(lambda: bool(stale.outcome), f"{stale} is answered")
    is_refused = stale.outcome != "ok"
    assert is_refused, f"{old} reads {stale.result!r} under its lease although {new} serves"
    story.heal()
    story.come_to_rest()
