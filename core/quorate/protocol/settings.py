"""Time limits and size limits of the protocol, with the reason for each default."""

import msgspec


class ProtocolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in milliseconds unless the name says otherwise."""

    lease_ms: int = 2000
    """How long the lease lasts that a voter grants with a heartbeat's answer.  The loss of a
    primary costs at most this much.  A shorter lease costs more heartbeats and is lost in shorter
    pauses."""

    lease_margin_ms: int = 100
    """The holder counts the lease this much shorter than the grantor: two machines' clocks may
    drift apart by 5 %."""

    heartbeat_ms: int = 400
    """How often agents ask each other for leases; several fit into one lease."""

    retry_ms: int = 500
    """When an unanswered request is sent again."""

    repair_ms: int = 300
    """How long a gap may last before the copy asks for its updates: younger ones are in flight."""

    announce_ms: int = 1000
    """How often an idle primary tells its copies its position."""

    failure_detection_ms: int = 3000
    """Silence after which the master marks a node as left.  Hazelcast and Ignite use 10 s and more;
    this one is short because a node that leaves costs no copies at once."""

    refusal_delay_ms: int = 10_000
    """How long the master waits for an online agent that refuses a zone before a spare takes its
    place.  (The wait for a lost agent is set per zone: ZoneRecord.scale_down_ms.)"""

    reset_question_ms: int = 1_000
    """How long the survivor of a reset waits for what the other copies that are there hold."""

    migration_bound_ms: int = 30_000
    """A migration that takes longer than this between Freeze and commit is given up (version +
    2)."""

    migration_stall_ms: int = 60_000
    """A migration is given up when it stalls for this long: either its destination receives no more
    bytes and has not caught up, or it has caught up and no quorum of the voters has stored its row.

    There is no limit on the total time.  One row of 64 MiB arrives as a whole, so it needs a little
    more than 1 MB per second.
    """

    activation_bound_ms: int = 5_000
    """After this long without Activated, the master tries another voter."""

    park_bound_ms: int = 5_000
    """One limit for three waits:

    - a command waits this long for a serving primary, then the reply is CLUSTERDOWN
    - a forwarded command is sent again for this long
    - a command that waits for acknowledgements waits this long after its primary's lease has ended
    """

    forward_ms: int = 2000
    """How long an agent forwards commands after it has lost the primary; then it redirects.  By
    then, clients that subscribe to changes or ask for them know the new primary."""

    step_retry_ms: int = 100
    """When an unanswered step of a transaction is sent again.  It is short because keys are
    locked."""

    transaction_bound_ms: int = 12_000
    """An undecided transaction is aborted after this long, or at once when its coordinator is gone.
    It is longer than any client waits for a transaction."""

    log_bytes_max: int = 64 * 1024 * 1024
    """Size of the update logs of one zone on one agent, shared evenly by its copies."""

    log_age_max_ms: int = 3_600_000
    """Older updates are removed from the log even when there is room."""

    aside_bytes_max: int = 1024**3
    """Bytes of keys and values that an agent keeps aside after resets; a process takes a share of
    its disk instead.  What is oldest is dropped first."""

    transfer_chunk_bytes: int = 256 * 1024
    """Size of one piece of a transfer: small enough not to delay the heartbeats behind it."""

    transfer_bytes_per_s: int = 200 * 1024 * 1024
    """Bytes that one agent supplies per second, over all zones, so that transfers leave room for
    clients.  Only full copies wait for it; deltas are sent at once and counted."""

    migrations_per_node: int = 8
    """Transfers in progress per node, as source and destination together.  More at once make each
    one slower, and none ends sooner."""

    migration_bytes_per_node: int = 4 * 1024**3
    """Bytes of the transfers in progress per node: half-filled copies need room beside the old
    ones.  A partition larger than this moves alone."""

    role_changes_per_node: int = 8
    """Role changes in progress per node.  They move no data, but each one parks the clients of its
    partition until all that started with it are done.  With few at a time that wait is short."""

    migrations_per_zone: int = 1024
    """Transfers in progress per zone.  It limits how many writes of rows may follow each other."""

    migration_bytes_per_zone: int = 1024**4
    """Bytes of the transfers in progress per zone."""


DEFAULTS = ProtocolSettings()
