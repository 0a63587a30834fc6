"""Which cluster, workload and faults a seed draws."""

from random import Random

import msgspec

from quorate.facts.zone import StorageKind, SyncWrites, ZoneRecord
from quorate.protocol.settings import ProtocolSettings
from quorate_sim.placements import (
    Placement,
    draw_modes,
    draw_placements,
    draw_planners,
    draw_timers,
    is_high,
)
from quorate_sim.rare_faults import NONE, RareFaults, draw_rare_faults

DRIFT_MAX = 0.0243
"""Either way: two clocks that differ by as much as the protocol allows, 5 %."""

OTHERS = (
    "breaks",
    "crashes",
    "freezes",
    "wipes",
    "disk_full",
    "slow_disks",
    "blackouts",
    "master_crashes",
    "master_freezes",
    "second_masters",
    "leaves",
    "metastore_trouble",
)
"""Faults that a seed about one thing mostly does without."""


class Swarm(msgspec.Struct, frozen=True, kw_only=True):
    """One seed's draw.  Rates are per simulated second, probabilities per event; without a fault's
    number it does not happen."""

    agents: int
    zones: tuple[ZoneRecord, ...]
    settings: ProtocolSettings
    placements: tuple[Placement, ...] = ()
    shard_partitions: int = 64
    clients: int = 0
    keys: int = 0
    value_bytes: int = 0
    flushes: float = 0.0
    bursts: float = 0.0
    transactors: int = 0
    safety_ms: int = 0
    delay_us: tuple[int, int] = (100, 400)
    slow_delay: float = 0.0
    harsh: bool = False
    duplicates: float = 0.0
    tick_ms: int = 20
    drift: float = 0.0
    clock_jumps: float = 0.0
    sync_us: tuple[int, int] = (50, 500)
    crashes: float = 0.0
    freezes: float = 0.0
    cuts: float = 0.0
    cut_styles: tuple[str, ...] = ()
    breaks: float = 0.0
    wipes: float = 0.0
    disk_full: float = 0.0
    slow_disks: float = 0.0
    blackouts: float = 0.0
    master_crashes: float = 0.0
    master_freezes: float = 0.0
    second_masters: float = 0.0
    joins: int = 0
    leaves: float = 0.0
    drains: float = 0.0
    metastore_trouble: float = 0.0
    ambushes: float = 0.0
    ends_shown: bool = False
    """The operator is shown which processes have ended, as Kubernetes shows it."""
    rare: RareFaults = NONE

    @property
    def in_memory(self) -> bool:
        """Whether a process that dies takes copies with it."""
        return any(not zone.persistent for zone in self.zones)

    @property
    def interval(self) -> bool:
        """Whether a machine that dies takes acknowledged updates with it."""
        return any(zone.sync_writes is SyncWrites.INTERVAL for zone in self.zones)


def zone_record(
    uid: str,
    partitions: int,
    replicas: int,
    storage: StorageKind = StorageKind.PERSISTENT,
    sync_writes: SyncWrites = SyncWrites.ALWAYS,
) -> ZoneRecord:
    """A zone as a user declares it; its name is its uid."""
    return ZoneRecord(uid, uid, partitions, replicas, storage, sync_writes)


def _zones(r: Random, agents: int) -> tuple[ZoneRecord, ...]:
    """Mostly one zone; sometimes two that have nothing in common but their agents."""
    zones: list[ZoneRecord] = []
    for uid in ("zone", "other") if r.random() < 0.12 else ("zone",):
        storage, sync = StorageKind.PERSISTENT, SyncWrites.ALWAYS
        chance = r.random()
        if chance < 0.25:
            storage = StorageKind.IN_MEMORY
        elif chance < 0.37:
            sync = SyncWrites.INTERVAL
        partitions = r.choice((1, 2, 4) if not zones else (1, 2))
        replicas = min(agents, r.choice((1, 2, 3, 3, 3, 3, 5)))
        zones.append(zone_record(uid, partitions, replicas, storage, sync))
    return tuple(zones)


def draw(seed: int) -> Swarm:
    """What this seed is."""
    r = Random(f"swarm {seed}")
    agents = r.choice((1, 2, 3, 3, 3, 4, 5))

    def some(probability: float, low: float, high: float) -> float:
        """A rate that many seeds do not have at all: what is always on hides what is rare."""
        present = r.random() < probability
        rate = r.uniform(low, high)
        return rate if present else 0.0

    settings = ProtocolSettings(
        lease_ms=1000,
        lease_margin_ms=60,
        heartbeat_ms=200,
        retry_ms=r.choice((150, 250, 400)),
        repair_ms=150,
        announce_ms=r.choice((200, 500)),
        failure_detection_ms=r.choice((800, 1200, 2000)),
        refusal_delay_ms=r.choice((500, 3000)),
        migration_bound_ms=4000,
        activation_bound_ms=r.choice((1200, 2500)),
        log_bytes_max=r.choice((0, 1 << 20)),
        transfer_chunk_bytes=r.choice((100, 1000, 100_000)),
    )
    # One seed in six is about isolation alone: who is cut off must stop in time, by lease.
    about = r.random()
    isolation = about < 1 / 6
    # Another one in six is about migrations: somebody is always on the move, and struck meanwhile.
    migrations = not isolation and about < 1 / 3
    zones = _zones(r, agents)
    if isolation:
        agents = 3
        zones = (zone_record("zone", r.choice((1, 2)), 3),)
        settings = msgspec.structs.replace(settings, failure_detection_ms=800)
    if migrations:
        agents = r.choice((4, 4, 5))
        zones = (zone_record("zone", r.choice((1, 2)), 3, zones[0].storage, zones[0].sync_writes),)
    swarm = Swarm(
        agents=agents,
        zones=zones,
        settings=settings,
        shard_partitions=r.choice((1, 2, 64, 64, 64)),
        clients=r.choice((2, 3, 5)),
        keys=r.choice((2, 4, 8, 40)),
        value_bytes=r.choice((0, 0, 1500, 4000)),
        flushes=r.choice((0.0, 0.0, 0.03)),
        bursts=some(0.25, 0.005, 0.03),
        safety_ms=r.choice((6000, 9000, 12000)),
        delay_us=r.choice(((100, 1500), (200, 8000), (100, 40_000))),
        slow_delay=some(0.3, 0.002, 0.03),
        harsh=r.random() < 0.25,
        duplicates=some(0.3, 0.01, 0.1),
        tick_ms=r.choice((40, 100)),
        drift=r.choice((0.0, 0.01, DRIFT_MAX)),
        clock_jumps=some(0.2, 0.1, 0.5),
        sync_us=r.choice(((50, 500), (500, 10_000), (1000, 120_000))),
        crashes=some(0.7, 0.05, 0.6),
        freezes=some(0.4, 0.05, 0.3),
        cuts=some(0.6, 0.1, 0.7),
        cut_styles=("one way", "pair", "alone", "halves", "nearly alone", "ever lonelier"),
        breaks=some(0.4, 0.1, 2.0),
        wipes=some(0.3, 0.1, 0.6),
        disk_full=some(0.2, 0.2, 3.0),
        slow_disks=some(0.2, 0.1, 0.4),
        blackouts=some(0.15, 0.05, 0.15),
        master_crashes=some(0.4, 0.05, 0.3),
        master_freezes=some(0.2, 0.05, 0.2),
        second_masters=some(0.3, 0.05, 0.3),
        joins=r.choice((0, 0, 1, 2)),
        leaves=some(0.25, 0.05, 0.2),
        drains=some(0.2, 0.1, 0.4),
        metastore_trouble=some(0.4, 0.02, 0.2),
        ambushes=some(0.4, 0.03, 0.25),
    )
    if isolation:
        swarm = msgspec.structs.replace(
            swarm,
            cuts=1.0,
            cut_styles=("nearly alone", "ever lonelier", "alone"),
            clients=5,
            breaks=0.0,
            crashes=0.0,
            blackouts=0.0,
        )
    if migrations:
        swarm = msgspec.structs.replace(
            swarm, drains=r.uniform(0.4, 1.2), ambushes=r.uniform(0.03, 0.3), cuts=swarm.cuts / 4
        )
    if (isolation or migrations) and r.random() < 0.6:
        # About nothing else: to be missed, or to outlive a lease, takes more than a second's quiet.
        swarm = msgspec.structs.replace(swarm, **dict.fromkeys(OTHERS, 0.0), joins=0)
        if isolation:
            swarm = msgspec.structs.replace(swarm, cuts=0.4, drains=0.0, ambushes=0.0)
    # One in eight is a storm: little of everything lives long.
    if not isolation and not migrations and r.random() < 1 / 8:
        swarm = msgspec.structs.replace(
            swarm, crashes=2.0, breaks=5.0, cuts=0.5, master_crashes=0.5, metastore_trouble=0.2
        )
    transactors = r.choice((0, 0, 2))
    if is_high(seed):  # from a stream of its own, as what else is drawn for that mode
        transactors = 2 if Random(f"{seed} transactions").random() < 0.3 else 0
    if transactors:  # their lists must not be emptied: what is appended tells the order
        swarm = msgspec.structs.replace(swarm, transactors=transactors, flushes=0.0)
    return msgspec.structs.replace(
        swarm,
        placements=draw_placements(seed),
        zones=draw_modes(seed, draw_timers(seed, draw_planners(seed, swarm.zones))),
        rare=draw_rare_faults(seed),
        ends_shown=Random(f"{seed} words").random() < 0.2,
    )
