"""`quorate debug refill`: replaces the rows of a copy that the others out-vote by theirs.

A validation of level digest, before and afterwards, judges which copies are right.  The agent does
the rest while it is asked repeatedly (quorate.protocol.agent.repairs.refill).
"""

import tempfile
import time
import uuid
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from quorate.facts.addresses import split_address
from quorate.protocol.messages.tools import ASKED_MS_MAX, Refill, Refilling
from quorate_cli.commands.objects import ServerOption, zone_validation
from quorate_cli.copies.agent_question import Asked, Unreached, ask_agent
from quorate_cli.copies.validation import run_validation
from quorate_cli.dev.commands import FolderOption, dev_cluster
from quorate_cli.objects import resources
from quorate_cli.objects.cluster_state import fetch_state
from quorate_cli.objects.operator_api import OperatorApi, parse_server
from quorate_cli.objects.resources import ZONE
from quorate_cli.processes.cluster_folder import DEFAULT_FOLDER, ClusterFolder
from quorate_cli.terminal.figures import size
from quorate_cli.terminal.options import ZoneArgument
from quorate_cli.terminal.problem import Problem
from quorate_cli.terminal.teller import PlainConsole

console = PlainConsole()

POLL_S = 0.3


class Outvoted(msgspec.Struct, frozen=True):
    """A copy that a majority contradicts, as the validation reports it."""

    partition: int
    node: str
    suppliers: tuple[str, ...]


class DigestTold(msgspec.Struct, frozen=True):
    """One copy's digest."""

    node: str
    digest: str


class Differing(msgspec.Struct, frozen=True):
    """A partition whose copies have different digests.

    `confirmed`: a key is confirmed to differ.  `keys`: those that the report lists, which may be
    none.
    """

    partition: int
    copies: tuple[DigestTold, ...]
    confirmed: bool = False
    keys: tuple[str, ...] = ()


class Digests(msgspec.Struct, frozen=True):
    """Result of level digest.  `differing` has the first of `partitions_differing`."""

    differing: tuple[Differing, ...] = ()
    partitions_differing: int = 0


class CountersDiffering(msgspec.Struct, frozen=True):
    """A partition of which the copies' counters cannot all be right: its rows are not compared."""

    partition: int
    detail: str


class Verdict(msgspec.Struct, frozen=True):
    """The part of the validation's report that is needed here.

    `counter_differences` has the first of `differing_partitions`.
    """

    reasons: tuple[str, ...] = ()
    counter_differences: tuple[CountersDiffering, ...] = ()
    differing_partitions: int = 0
    outvoted: tuple[Outvoted, ...] = ()
    digests: Digests | None = None

    def differing(self, partition: int) -> Differing | None:
        """Return the partition's digests if a key of it is confirmed to differ, else None."""
        listed = self.digests.differing if self.digests is not None else ()
        found = (each for each in listed if each.partition == partition and each.confirmed)
        return next(found, None)

    def why_unknown(self, partition: int) -> str:
        """Return why the partition could not be judged; empty if it was."""
        for each in self.counter_differences:
            if each.partition == partition:
                return f"its copies' counters differ: {each.detail}"
        counted = [each.partition for each in self.counter_differences]
        if _may_be_unlisted(partition, counted, self.differing_partitions):
            return _unlisted(len(counted), self.differing_partitions, "whose counters differ")
        prefix = f"partition {partition}:"
        about = [text for text in self.reasons if text.startswith(prefix)]
        whole = [text for text in self.reasons if not text.startswith("partition ")]
        return next(iter([*about, *whole]), "") or self._why_not_listed(partition)

    def _why_not_listed(self, partition: int) -> str:
        """Return that the partition may be one of those that the report does not list, if so."""
        if self.digests is None:
            return ""
        listed = [each.partition for each in self.digests.differing]
        if not _may_be_unlisted(partition, listed, self.digests.partitions_differing):
            return ""
        return _unlisted(len(listed), self.digests.partitions_differing, "that differ")


def _may_be_unlisted(partition: int, listed: list[int], count: int) -> bool:
    """Return whether the partition may be one of `count` of which only the first are listed."""
    return len(listed) < count and not (listed and partition <= listed[-1])


def _unlisted(listed: int, count: int, which: str) -> str:
    return (
        f"the report lists {listed} of {count} partitions {which}, and not this one: mend those"
        " that it lists first"
    )


def choose_suppliers(
    verdict: Verdict, zone: str, partition: int, agent: str, named: list[str]
) -> tuple[str, ...]:
    """Return the nodes whose copies are to supply the rows.

    Raises Problem if the copy must not or need not be refilled, with what to do instead.
    """
    about = f"zone {zone}, partition {partition}"
    found = verdict.differing(partition)
    outvoted = {each.node: each for each in verdict.outvoted if each.partition == partition}
    if found is None:
        unknown = verdict.why_unknown(partition)
        if unknown:
            raise Problem(f"{about}: cannot determine which copies are right: {unknown}")
        if not named:
            raise Problem(
                f"{about}: the digests of all copies agree, so there is nothing to refill. Digests"
                " do not show a row that was changed on disk: if `quorate validate"
                f" {zone} --level rows` names this copy, run the command that it prints"
            )
        return tuple(named)
    told = ", ".join(f"{copy.node} {copy.digest[:8]}" for copy in found.copies)
    if not outvoted:
        raise Problem(
            f"{about}: no majority of its copies agrees ({told}), so {agent} may have the last good"
            " one. Start the agents that have the other copies, then try again; if there are none,"
            " the right copy cannot be determined"
        )
    if agent not in outvoted:
        wrong = ", ".join(outvoted)
        raise Problem(
            f"{about}: the copy of {agent} is not out-voted ({told}): refill the copy of {wrong}"
        )
    suppliers = outvoted[agent].suppliers
    wrong = ", ".join(node for node in named if node not in suppliers)
    if wrong:
        good = ", ".join(suppliers)
        raise Problem(
            f"{about}: --from {wrong} does not name a good copy ({told}): name one of {good}"
        )
    return tuple(named) or suppliers


def refill(
    zone: ZoneArgument,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    agent: Annotated[str, typer.Option(help="Agent whose copy is damaged.")],
    named: Annotated[
        list[str] | None,
        typer.Option(
            "--from", help="Agent whose copy is good. Default: those whose digests agree."
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=1, help="Seconds after which the command gives up.")
    ] = 600.0,
    server: ServerOption = None,
    folder: FolderOption = DEFAULT_FOLDER,
) -> None:
    """Replace the rows of one copy that the others out-vote by rows from them.

    The copy keeps its promises and acknowledgements, and clients continue.  If it is the primary,
    the partition is handed over first.  Refused if no majority of the copies agrees.
    """
    api = parse_server(server, ClusterFolder(folder)) if server else dev_cluster(folder).api()
    spec = resources.zone(resources.fetch(api, ZONE, zone)).spec
    if partition >= spec.partitions:
        raise Problem(
            f"zone {zone} has no partition {partition}: write a number from 0 to"
            f" {spec.partitions - 1}"
        )
    state = fetch_state(api, spec.cluster_ref.name)
    node = state.node(agent)
    if node is None:
        known = ", ".join(each.name for each in state.nodes)
        raise Problem(f"--agent {agent}: there is no such agent: write one of {known}")
    suppliers = choose_suppliers(
        _validate(api, zone, folder), zone, partition, agent, list(named or ())
    )
    console.print(f"{agent}: partition {partition} gets the rows of {', '.join(suppliers)}")
    cluster = spec.cluster_ref.name
    secret_file = ClusterFolder(folder).secret_file(cluster)
    asked = Asked(*split_address(node.address), cluster, agent, secret_file)
    question = Refill(zone, partition, uuid.uuid4().hex, suppliers)
    moved = until_done(asked, question, wait)
    after = _validate(api, zone, folder)
    differing = after.differing(partition)
    if differing is not None and any(
        each.partition == partition and each.node == agent for each in after.outvoted
    ):
        keys = f" in {', '.join(differing.keys[:5])}" if differing.keys else ""
        raise Problem(
            f"zone {zone}, partition {partition}: refilled, but {agent} still differs"
            f"{keys}: its log is damaged, or it was damaged again: drain"
            f" {agent}, then move its data folder away and start it with an empty one"
        )
    unknown = after.why_unknown(partition)
    judged = (
        f"whether all copies agree now is unknown: {unknown}" if unknown else "all copies agree"
    )
    if differing is not None:
        judged = "other copies still differ: `quorate validate` names them"
    console.print(f"{agent}: partition {partition} is refilled ({size(moved)}); {judged}")


def _validate(api: OperatorApi, zone: str, folder: Path) -> Verdict:
    work = ClusterFolder(folder).work
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="refill-", dir=work) as name:
        report, log = Path(name) / "report.json", Path(name) / "log"
        command, _ = zone_validation(api, zone, "digest", folder, report)
        run_validation(command, log)
        try:
            return msgspec.json.decode(report.read_bytes(), type=Verdict)
        except (OSError, msgspec.MsgspecError) as error:
            said = log.read_text(errors="replace")[-500:] if log.exists() else ""
            raise Problem(f"the validation of zone {zone} wrote no report: {said}") from error


def until_done(asked: Asked, question: Refill, wait_s: float) -> int:
    """Ask until the refill is done; return the bytes moved."""
    agent = asked.node
    deadline = time.monotonic() + wait_s
    moved, said, unreached = 0, "", ""
    while True:
        try:
            answer = ask_agent(asked, question, Refilling)
        except Unreached as error:
            unreached = str(error)  # it may be restarting
        else:
            unreached = ""
            if answer.done:
                return moved
            if answer.problem:
                raise Problem(f"{agent}: {answer.problem}; the copy was not changed")
            moved = max(moved, answer.bytes_done)
            if answer.waits_for != said:
                said = answer.waits_for
                console.print(f"{agent}: waiting for {said}", style="dim")
        if time.monotonic() > deadline:
            raise Problem(
                f"{agent}: not refilled within {wait_s:g} s"
                f" ({unreached or f'waiting for {said}'}); whether the copy was changed is unknown:"
                f" the refill may still end within {ASKED_MS_MAX // 1000} s; `quorate validate`"
                " tells whether the copies agree then"
            )
        time.sleep(POLL_S)
