"""Which cluster, workload and faults a seed draws."""

from random import Random

import msgspec

from quorate.protocol.settings import ProtocolSettings


class Swarm(msgspec.Struct, frozen=True):
    """One seed's draw.  Rates are per simulated second, probabilities per event."""

    agents: int
    spares: int
    partitions: int
    replicas: int
    in_memory: bool
    clients: int
    keys: int
    value_bytes: int
    flushes: float
    safety_ms: int
    delay_us: tuple[int, int]
    slow_delay: float
    harsh: bool
    duplicates: float
    tick_ms: int
    drift: float
    sync_us: tuple[int, int]
    crashes: float
    freezes: float
    cuts: float
    cut_styles: tuple[str, ...]
    breaks: float
    wipes: float
    disk_full: float
    master_crashes: float
    second_masters: float
    joins: int
    leaves: float
    drains: float
    metastore_trouble: float
    settings: ProtocolSettings


def draw(seed: int) -> Swarm:
    """What this seed is."""
    r = Random(f"swarm {seed}")
    agents = r.choice((1, 2, 3, 3, 3, 4, 5))
    replicas = min(agents, r.choice((1, 2, 3, 3, 3, 3, 5)))

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
        replacement_delay_ms=r.choice((500, 3000)),
        migration_bound_ms=4000,
        activation_bound_ms=r.choice((1200, 2500)),
        log_bytes_max=r.choice((0, 1 << 20)),
        transfer_chunk_bytes=r.choice((100, 1000, 100_000)),
    )
    # One seed in six is about isolation alone: who is cut off must stop in time, by lease.
    isolation = r.random() < 1 / 6
    if isolation:
        agents = replicas = 3
        settings = msgspec.structs.replace(settings, failure_detection_ms=800)
    swarm = Swarm(
        agents=agents,
        spares=0,
        partitions=r.choice((1, 2, 4)),
        replicas=replicas,
        in_memory=r.random() < 0.25,
        clients=r.choice((2, 3, 5)),
        keys=r.choice((2, 4, 8, 40)),
        value_bytes=r.choice((0, 0, 1500, 4000)),
        flushes=r.choice((0.0, 0.0, 0.03)),
        safety_ms=r.choice((6000, 9000, 12000)),
        delay_us=r.choice(((100, 1500), (200, 8000), (100, 40_000))),
        slow_delay=some(0.3, 0.002, 0.03),
        harsh=r.random() < 0.25,
        duplicates=some(0.3, 0.01, 0.1),
        tick_ms=r.choice((40, 100)),
        drift=r.choice((0.0, 0.01, 0.024)),
        sync_us=r.choice(((50, 500), (500, 10_000), (1000, 120_000))),
        crashes=some(0.7, 0.05, 0.6),
        freezes=some(0.4, 0.05, 0.3),
        cuts=some(0.6, 0.1, 0.7),
        cut_styles=("one way", "pair", "alone", "halves", "nearly alone"),
        breaks=some(0.4, 0.1, 2.0),
        wipes=some(0.3, 0.1, 0.6),
        disk_full=some(0.2, 0.2, 3.0),
        master_crashes=some(0.4, 0.05, 0.3),
        second_masters=some(0.3, 0.05, 0.3),
        joins=r.choice((0, 0, 1, 2)),
        leaves=some(0.25, 0.05, 0.2),
        drains=some(0.2, 0.1, 0.4),
        metastore_trouble=some(0.4, 0.02, 0.2),
        settings=settings,
    )
    if isolation:
        swarm = msgspec.structs.replace(
            swarm,
            cuts=1.0,
            cut_styles=("nearly alone", "alone"),
            clients=5,
            breaks=0.0,
            crashes=0.0,
        )
    # One in eight is a storm: little of everything lives long.
    if not isolation and r.random() < 1 / 8:
        swarm = msgspec.structs.replace(
            swarm, crashes=2.0, breaks=5.0, cuts=0.5, master_crashes=0.5, metastore_trouble=0.2
        )
    return swarm
