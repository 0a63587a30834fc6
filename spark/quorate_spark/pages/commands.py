"""The commands that look at what a validation found, and that repair it; for a reader to copy."""

import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from quorate_spark.verdict import Level, OutvotedCopy, Verdict

COPIES_MAX = 10
"""Copies whose commands are listed."""


class Step(NamedTuple):
    """Commands that do one thing, and what to know of them."""

    title: str
    lines: tuple[str, ...]
    about: str = ""


def dev_commands(verdict: Verdict) -> list[Step]:
    """Return the commands of `quorate`."""
    zone = shlex.quote(verdict.zone)
    steps = [
        Step(
            "Look",
            (
                f"quorate describe zone {zone}",
                f"quorate validate {zone} --level {verdict.level} --report reports/",
            ),
        )
    ]
    if verdict.outvoted:
        steps.append(
            Step(
                "Repair whole copies that the others out-vote",
                _bounded(verdict, _refills(zone, verdict)),
                "Each makes one copy fetch its rows again from those that agree.",
            )
        )
    if verdict.key_differences:
        level = " --level digest" if verdict.level is Level.DIGEST else ""
        plan = shlex.quote(f"repair-{verdict.zone}.parquet")
        steps += [
            Step(
                "Repair single keys, dry",
                (f"quorate repair {zone} --strategy RELATIVE_MAJORITY{level}",),
                "Changes nothing, and writes a plan that can be read.",
            ),
            Step(
                "Repair single keys",
                (f"quorate repair {zone} --execute {plan}",),
                "Executes exactly that plan. Then validate again.",
            ),
        ]
    return steps


def kubectl_commands(verdict: Verdict) -> list[Step]:
    """Return the commands of `kubectl` and `kubectl quorate`."""
    zone = shlex.quote(verdict.zone)
    steps = [
        Step(
            "Look",
            (f"kubectl quorate describe zone {zone}", "kubectl get datavalidations"),
            "With --namespace, unless it is that of the context.",
        )
    ]
    if verdict.outvoted:
        lines = _restarts(zone, verdict.outvoted[:COPIES_MAX])
        steps += [
            Step(
                "Repair whole copies that the others out-vote, dry",
                _bounded(verdict, lines),
                "Each says what would be done, and prints the line that does it.",
            ),
            Step(
                "Repair them",
                tuple(f"{line} --versions VERSIONS --yes" for line in lines),
                "VERSIONS are those of the partitions' rows, as the dry run prints them. The copies"
                " are dropped and made anew from the others.",
            ),
        ]
    if verdict.key_differences:
        repair = f"kubectl quorate repair {zone}"
        level = " --level digest" if verdict.level is Level.DIGEST else ""
        steps += [
            Step(
                "Repair single keys, dry",
                (f"{repair} --strategy RELATIVE_MAJORITY{level} --destination CLAIM:FOLDER",),
                "Changes nothing, and writes a plan, which can be read, to a folder of a volume.",
            ),
            Step(
                "Repair single keys",
                (f"{repair} --execute NAME",),
                "NAME is that of the ZoneRepair that has made the plan. Then validate again.",
            ),
        ]
    return steps


def _refills(zone: str, verdict: Verdict) -> Iterable[str]:
    for copy in verdict.outvoted[:COPIES_MAX]:
        line = f"quorate debug refill {zone} {copy.partition} --agent {shlex.quote(copy.node)}"
        if verdict.digests is None:  # digests need not show the damage
            line += "".join(f" --from {shlex.quote(node)}" for node in copy.suppliers)
        yield line


def _restarts(zone: str, copies: Sequence[OutvotedCopy]) -> list[str]:
    """Return one command for each node."""
    by_node: dict[str, list[str]] = {}
    for copy in copies:
        by_node.setdefault(copy.node, []).append(str(copy.partition))
    return [
        f"kubectl quorate recover restart {zone} --partitions {','.join(partitions)}"
        f" --node {shlex.quote(node)} --erase"
        for node, partitions in by_node.items()
    ]


def _bounded(verdict: Verdict, lines: Iterable[str]) -> tuple[str, ...]:
    more = len(verdict.outvoted) - COPIES_MAX
    return (*lines, *([f"# and {more} more, which the JSON names"] if more > 0 else []))
