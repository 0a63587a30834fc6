"""Which client libraries are tried, in which versions, and what is known of each."""

from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parents[1] / "clients"
JAVA_PROGRAM = PROGRAMS / "java" / "Counters.java"


@dataclass(frozen=True, slots=True)
class Library:
    """`pins` is the file or folder under `tests/clients` that pins it and all it needs.

    `shares_client`: one client serves all four workers; not where the library closes connections
    that other threads are using.  `failed_by_a_kill_max`: how many commands it may fail because an
    agent was killed: as a rule one in flight and one repetition of each worker.
    `finds_no_other`: when an agent is killed, it stays with that for a minute, or for ever.
    `drops`: what it says of commands that it gives up itself, in the middle of any change.
    """

    name: str
    language: str
    pins: str
    shares_client: bool = True
    failed_by_a_kill_max: int = 8
    finds_no_other: bool = False
    drops: str = ""

    @property
    def part(self) -> str:
        """Its name among the parts that a machine may lack (`machine_parts`)."""
        return f"client library {self.name}"

    @property
    def pinned_by(self) -> Path:
        return PROGRAMS / self.pins

    @property
    def sources(self) -> list[Path]:
        """Every file that says what is to be installed or built."""
        pins = self.pinned_by
        found = sorted(pins.iterdir()) if pins.is_dir() else [pins]
        return [*found, JAVA_PROGRAM] if self.language == "java" else found


LIBRARIES = (
    Library("redis-py-5", "python", "python/redis-5.txt", shares_client=False),
    Library("redis-py-6", "python", "python/redis-6.txt", shares_client=False),
    Library("redis-py-7", "python", "python/redis-7.txt"),
    Library("redis-py-8", "python", "python/redis-8.txt"),
    Library("valkey-py-6", "python", "python/valkey-6.txt"),
    Library("ioredis-5", "node", "node/ioredis-5"),
    Library("ioredis-6", "node", "node/ioredis-6"),
    Library(
        "node-redis-5",
        "node",
        "node/node-redis-5",
        finds_no_other=True,
        drops="Disconnects client",
    ),
    Library(
        "node-redis-6",
        "node",
        "node/node-redis-6",
        failed_by_a_kill_max=16,
        drops="Disconnects client",
    ),
    Library("go-redis-9", "go", "go", finds_no_other=True),
    Library("jedis-8", "java", "java/jedis-8"),
    Library("lettuce-7", "java", "java/lettuce-7"),
)
