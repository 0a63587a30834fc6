"""The effect of a person's decision on one partition."""

from typing import NamedTuple

from quorate.facts.partition_row import PartitionRow
from quorate.protocol.zone_master.causes import Why


class Verdict(NamedTuple):
    """The reason to refuse a decision, or its effect in words, and the row to be written.

    `seen`: the number by which a person names the invalid or lost row; 0: there is a valid one.
    """

    refusal: str = ""
    sentence: str = ""
    change: tuple[PartitionRow, Why] | None = None
    seen: int = 0


IS_CHANGING = "its row is being changed: look again in a moment"


def verb(dry_run: bool, would: str, does: str) -> str:
    """Return the verb of a sentence on what is done, or would be: `would` without "would"."""
    return f"would {would}" if dry_run else does
