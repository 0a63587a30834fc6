"""The options of the data source.  Spark passes their names in lower case."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from quorate_spark.reading.agent_link import Cluster, Unreadable, parse_addresses, read_cluster
from quorate_spark.settings import Settings

Options = dict[str, str]
Number = TypeVar("Number", int, float)
Default = TypeVar("Default", float, None)


@dataclass(frozen=True, slots=True)
class Source:
    """The zone, the peer ports of its agents, and their cluster with a tool's keys.

    It is read on the driver, so workers need no file of the secret.
    """

    zone: str
    agents: tuple[str, ...]
    cluster: Cluster
    settings: Settings


def source_of(options: Options) -> Source:
    """Return what all options name together.  Raises Unreadable or SecretRefused."""
    zone = required(options, "zone")
    agents = parse_addresses(required(options, "agents"))
    secret_file = required(options, "secret_file")
    cluster = read_cluster(required(options, "cluster"), secret_file)
    defaults = Settings()
    settings = Settings(
        connect_timeout_s=number(options, "connect_timeout_s", defaults.connect_timeout_s),
        answer_timeout_s=number(options, "answer_timeout_s", defaults.answer_timeout_s),
        chunk_bytes=int(number(options, "chunk_bytes", defaults.chunk_bytes)),
        max_mib_per_second_per_agent=_parsed(
            options, "max_mib_per_second_per_agent", None, int, "a whole number"
        ),
    )
    return Source(zone, agents, cluster, settings)


def required(options: Options, name: str) -> str:
    """Return the option.  Raises Unreadable if it is missing or empty."""
    value = options.get(name, "").strip()
    if not value:
        raise Unreadable(f'option {name} is missing: add .option("{name}", …)')
    return value


def choice(options: Options, name: str, allowed: tuple[str, ...]) -> str:
    """Return the option, the first of `allowed` by default.  Raises Unreadable for others."""
    value = options.get(name.lower(), allowed[0])
    if value not in allowed:
        raise Unreadable(f"option {name} is {value!r}: write {' or '.join(allowed)}")
    return value


def beginning(options: Options) -> str:
    """Return where a stream without a checkpoint begins.  Raises Unreadable."""
    return choice(options, "startingOffsets", ("latest", "earliest", "snapshot"))


def on_log_lost(options: Options) -> str:
    """Return what a stream does where logs do not reach back.  Raises Unreadable."""
    return choice(options, "onLogLost", ("fail", "snapshot"))


def may_tell_anew(options: Options) -> bool:
    """Return whether a stream may tell all rows of a partition.  Raises Unreadable."""
    return "snapshot" in (beginning(options), on_log_lost(options))


def number(options: Options, name: str, default: float) -> float:
    """Return the option as a number.  Raises Unreadable if it is none."""
    return _parsed(options, name, default, float, "a number")


def _parsed(
    options: Options, name: str, default: Default, parse: Callable[[str], Number], words: str
) -> Number | Default:
    """Return the option as `parse` reads it.  Raises Unreadable, with `words` of what to write."""
    text = options.get(name, "")
    try:
        return parse(text) if text else default
    except ValueError as error:
        raise Unreadable(f"option {name} is {text!r}: write {words}") from error


def partition_numbers(options: Options) -> frozenset[int] | None:
    """Return the partitions of the zone that the option names; None: all."""
    text = options.get("partitions", "")
    if not text:
        return None
    try:
        return frozenset(int(part) for part in text.split(","))
    except ValueError as error:
        raise Unreadable(
            f"option partitions is {text!r}: write numbers with commas, as in 0,3,7"
        ) from error
