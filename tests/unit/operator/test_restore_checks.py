"""The check before an import: how old it may be, how often it is made again, and when it is not."""

import pytest

from quorate_loopback.namespace import Namespace
from quorate_loopback.restores import (
    FAILED,
    JOBS,
    MAY_BEGIN,
    NOTE,
    declare,
    end,
    note,
    put_job,
    running,
    show,
    text,
    until_finished,
    until_job,
    until_message,
    until_so,
)
from quorate_operator.declared.runs import job_runs
from quorate_operator.jobs import restore_job
from quorate_spark import __main__ as program


@pytest.fixture(autouse=True)
def shown(led: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zone `books` is served, and its object is seen as stored; refusals are soon tried again."""
    monkeypatch.setattr(job_runs, "REFUSED_S", 0.02)
    show(led)


@pytest.mark.parametrize("ago_s", [90, -90])
async def test_a_check_of_long_ago_does_not_begin_an_import(led: Namespace, ago_s: float) -> None:
    """Clients may have used the zone since; or the clocks differ."""
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN), ago_s=ago_s)
    look = await until_job(led, "back-look2-check")
    options = program._parser().parse_args(look)
    assert (options.check, options.continues) == (True, False)
    assert note(led) == ""
    await led.restart()
    end(led, "back-look2-check", text(FAILED))
    told = await until_finished(led)

    assert told["message"] == f"nothing is imported from backups:monday: {FAILED.reason}"
    assert note(led) == ""
    assert f"{JOBS}/back-restore" not in led.api.objects


async def test_a_second_check_begins_it(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN), ago_s=90)
    await until_job(led, "back-look2-check")
    end(led, "back-look2-check", text(MAY_BEGIN))

    await until_job(led, "back-restore")


async def test_a_second_check_that_waited_for_a_backup_is_followed_by_a_third(
    led: Namespace,
) -> None:
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN), ago_s=90)
    await until_job(led, "back-look2-check")
    destination = {"persistentVolumeClaim": {"claimName": "backups", "path": "tuesday"}}
    led.declare("ZoneBackup", "night", zoneRef={"name": "books"}, destination=destination)
    at = led.path("ZoneBackup", "night")
    await until_so(led, lambda: running(led, at), "the backup runs")
    end(led, "back-look2-check", text(MAY_BEGIN), ago_s=90)
    await until_message(led, "ZoneBackup night of the same zone is waited for")
    assert f"{JOBS}/back-look3-check" not in led.api.objects

    led.api.put(at, {**led.api.objects[at], "status": {"phase": "Finished"}})
    await until_job(led, "back-look3-check")
    end(led, "back-look3-check", text(MAY_BEGIN))
    await until_job(led, "back-restore")


async def test_checks_that_are_read_late_end_it_after_many(
    led: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore_job, "CHECKS_MAX", 3)
    declare(led)
    for job in ("back-check", "back-look2-check", "back-look3-check"):
        await until_job(led, job)
        end(led, job, text(MAY_BEGIN), ago_s=90)
    told = await until_finished(led)

    assert told["outcome"] == "Failed"
    assert "its last check, too, was read late" in told["message"]
    assert note(led) == ""


async def test_a_job_of_another_object_is_passed_over(led: Namespace) -> None:
    """The second check of `back` has the name of the first one of `back-2`."""
    put_job(led, "back-look2-check", "uid-of-back-2")
    declare(led)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN), ago_s=90)

    await until_job(led, "back-look3-check")


async def test_a_second_check_that_is_refused_ends_it(led: Namespace) -> None:
    declare(led)
    await until_job(led, "back-check")
    led.api.refuse = lambda method, path: 422 if (method, path) == ("POST", JOBS) else 0
    end(led, "back-check", text(MAY_BEGIN), ago_s=90)

    assert "nothing is imported" in (await until_finished(led))["message"]


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_check_that_is_not_about_an_empty_zone_has_no_age(
    led: Namespace, has_begun: bool
) -> None:
    led.zone("books", {NOTE: "backups:monday#0011aabb.x"} if has_begun else None)
    show(led)
    declare(led, intoNonEmpty=not has_begun)
    await until_job(led, "back-check")
    end(led, "back-check", text(MAY_BEGIN), ago_s=3600)

    await until_job(led, "back-restore")
