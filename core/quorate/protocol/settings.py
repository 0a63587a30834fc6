"""Bounds and intervals of the protocol, with the reason for each default."""

import msgspec


class ProtocolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All in milliseconds unless the name says otherwise."""

    lease_ms: int = 2000
    """How long a voter's promise not to serve others lasts after a heartbeat; a lost primary costs
    at most this much, a shorter one costs more heartbeats and falls to shorter pauses."""

    lease_margin_ms: int = 100
    """What the holder counts less than the grantor: clocks of two machines may drift by 5 %."""

    heartbeat_ms: int = 400
    """How often agents ask each other for leases; several fit into one lease."""

    retry_ms: int = 500
    """When an unanswered request is sent again."""

    repair_ms: int = 300
    """How long a gap may stand before its updates are asked for: younger ones are in flight."""

    announce_ms: int = 1000
    """How often an idle primary tells its copies where it stands."""

    failure_detection_ms: int = 3000
    """Silence after which the master takes a node for left (Hazelcast's and Ignite's are 10 s and
    more; ours is short because leaving costs no copies at once)."""

    refusal_delay_ms: int = 10_000
    """How long an agent that is there and refuses a zone is waited for before a spare takes its
    place.  (How long a lost agent is waited for is the zone's: ZoneRecord.scale_down_ms.)"""

    migration_bound_ms: int = 30_000
    """After this long between Freeze and commit a migration is given up (version + 2)."""

    migration_stall_ms: int = 60_000
    """After this long without a byte more at its destination, and before both sides are even, a
    migration is given up.  However long it takes in all, as long as it moves it goes on; one row of
    64 MiB arrives as a whole, at little more than 1 MB per second within this time.  So is one that
    has been even for this long while no quorum of the voters has stored its row."""

    activation_bound_ms: int = 5_000
    """After this long without Activated the master tries another voter."""

    park_bound_ms: int = 5_000
    """How long a command waits for a serving primary before CLUSTERDOWN; how long a forwarded one
    is asked again, and one that waits for acknowledgements outlives the primary's lease."""

    forward_ms: int = 2000
    """How long an agent whose primary went elsewhere forwards commands for it before it redirects:
    clients that are told of changes, or ask for them, have learnt of this one by then."""

    step_retry_ms: int = 100
    """When a step of a transaction that was not answered is asked for again: locks are held."""

    transaction_bound_ms: int = 12_000
    """After this long a transaction that was not decided is aborted; one whose coordinator is gone
    is at once.  Longer than any client waits for it."""

    log_bytes_max: int = 64 * 1024 * 1024
    """Update log of one zone on one agent, shared evenly by its copies."""

    log_age_max_ms: int = 3_600_000
    """Older updates leave the log even when there is room."""

    transfer_chunk_bytes: int = 256 * 1024
    """One piece of a transfer: small enough not to delay heartbeats behind it."""

    transfer_bytes_per_s: int = 200 * 1024 * 1024
    """What one agent supplies per second: transfers must leave room for clients."""

    migrations_per_node: int = 8
    """Transfers under way per node, as source and destination together: more at once make each one
    slower and none done sooner."""

    migration_bytes_per_node: int = 4 * 1024**3
    """Bytes of transfers under way per node: half-filled copies need room beside the old ones.  A
    partition larger than this moves alone."""

    role_changes_per_node: int = 8
    """Changes of roles under way per node: they move no data, yet each parks a partition's clients
    until all that begin with it are through: few at a time are short."""

    migrations_per_zone: int = 1024
    """Transfers under way per zone: so many writes of rows may follow each other."""

    migration_bytes_per_zone: int = 1024**4
    """Bytes of transfers under way per zone."""


DEFAULTS = ProtocolSettings()
