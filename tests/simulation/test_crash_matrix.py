"""All of the crash matrix: part of `make test`, not of `make test-fast`."""

import os
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.pool import Pool

import pytest

from migration_words import Kind, Moment, Role
from quorate_sim.crash_cases import FOLLOWED, Case, Fault, cases, whole, why_not
from quorate_sim.crash_matrix import run_case
from quorate_sim.planted_copies import source_deletes_early
from quorate_sim.planted_masters import never_looks_again, plus_one_for_plus_two

GROUPS = [(kind, role) for kind in Kind for role in Role if cases(kind, role)]

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def workers() -> Iterator[Pool]:
    with get_context("fork").Pool(os.cpu_count() or 1) as pool:
        yield pool


def failure_of(case: Case) -> str:
    """Why the combination does not hold; "" when it does."""
    try:
        run_case(case)
    except Exception as error:
        return f"{case}: {type(error).__name__}: {str(error)[:600]}"
    return ""


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "role"), GROUPS, ids=lambda each: each.value)
def test_nothing_is_lost_when_somebody_is_hurt_in_a_migration(
    workers: Pool, kind: Kind, role: Role
) -> None:
    _check(workers, cases(kind, role), f"{kind}, {role}")


def test_nothing_is_lost_in_one_combination_of_twelve(workers: Pool) -> None:
    every = [case for kind, role in GROUPS for case in cases(kind, role)]
    _check(workers, every[::12], "one of twelve")


def _check(workers: Pool, combinations: list[Case], what: str) -> None:
    failures = [each for each in workers.imap(failure_of, combinations, chunksize=4) if each]
    print(f"{what}: {len(combinations)} combinations, {len(failures)} failed")
    assert not failures, "\n".join(failures)


def test_every_combination_is_run_or_left_out_for_a_reason() -> None:
    run = [case for kind, role in GROUPS for case in cases(kind, role)]
    left_out = [case for case in whole() if why_not(case)]
    print(f"{len(run)} combinations of {len(whole())}, {len(left_out)} make no sense")
    assert sorted(run + left_out) == sorted(whole())
    assert len(run) == 2104
    assert {case.moment for case in run} == set(Moment)
    assert {case.fault for case in run} == set(Fault)
    assert {case.role for case in run} == set(Role)


def test_the_same_combination_is_the_same_run() -> None:
    case = Case(Kind.SWAP, Role.DESTINATION, Moment.FROZEN, Fault.POWER_LOSS)
    assert run_case(case, trace=True).world.lines == run_case(case, trace=True).world.lines


def test_a_source_that_deletes_early_is_found() -> None:
    """The destination of a MOVE dies while it is filled: the source's copy is still needed."""
    with source_deletes_early():
        failures = [failure_of(case) for case in cases(Kind.MOVE_BACKUP, Role.DESTINATION)]
    assert any("I-3" in each for each in failures)


def test_a_version_that_a_prepared_row_has_taken_is_found() -> None:
    """A migration is given up whose prepared row was sent, and the next row takes its number."""
    with plus_one_for_plus_two():
        failures = [failure_of(case) for case in cases(Kind.MOVE_BACKUP, Role.DESTINATION)]
    assert any("has the version of" in each for each in failures)


def test_a_master_that_never_looks_at_the_rows_again_is_found() -> None:
    """The one before it writes a row that it has no reason to write itself."""
    with never_looks_again():
        failures = [
            failure_of(case) for case in cases(Kind.DROP, Role.MASTER) if case.fault in FOLLOWED
        ]
    assert any("m2 has not heard of" in each for each in failures)
