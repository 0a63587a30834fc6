"""The programs in pods of runs that read copies get the limit for each agent, if there is one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.schema.resource import API_VERSION
from quorate.wire.zone import Restoring
from quorate_operator.jobs.backup_job import backup_work
from quorate_operator.jobs.job import Copies, Work
from quorate_operator.jobs.repair_job import repair_work
from quorate_operator.jobs.restore_job import check_work, import_work
from quorate_operator.jobs.validation_job import validation_work
from quorate_spark import __main__ as program
from quorate_spark.command_line import settings_of

COPIES = Copies("main", ("10.0.0.1:7100",), 64, 3, "uid", {}, "object")
CLAIM = {"persistentVolumeClaim": {"claimName": "backups", "path": "one"}}
NOTE = Restoring("claim:one", "0a1b2c3d", "run-1", False)
QUOTED = {"dryRun": False, "plan": {"source": CLAIM, "digest": "0a" * 32}}


@pytest.mark.parametrize(
    ("kind", "work", "spec"),
    [
        (DataValidation, validation_work, {}),
        (ZoneBackup, backup_work, {"destination": CLAIM}),
        (ZoneRepair, repair_work, {"strategy": "LWW", "destination": CLAIM}),
        (ZoneRepair, repair_work, QUOTED),
        (ZoneRestore, partial(check_work, begun=None), {"source": CLAIM}),
        (ZoneRestore, partial(import_work, mine=NOTE), {"source": CLAIM}),
    ],
)
def test_the_program_gets_the_limit(
    kind: Any, work: Callable[[Any, Copies], Work], spec: dict[str, Any]
) -> None:
    def limit(**more: Any) -> int | None:
        metadata = {"name": "one", "namespace": "shop", "uid": "uid-1"}
        whole = {"zoneRef": {"name": "books"}, **spec, **more}
        head = {"apiVersion": API_VERSION, "kind": kind.__name__, "metadata": metadata}
        made = work(kind.parse({**head, "spec": whole}), COPIES)
        options = program._parser().parse_args(made.arguments)
        return settings_of(options).max_mib_per_second_per_agent

    assert limit() is None
    assert limit(maxMiBPerSecondPerAgent=8) == 8
