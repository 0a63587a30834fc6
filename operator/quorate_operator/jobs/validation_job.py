"""The work of a DataValidation's pod: it reads every copy.

An exit code of 1 says that a difference is proven: another run finds the same.  In mode Idle no
other run is made after "could not tell" either: it would speak of another time.
"""

from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.validation_result import ValidationMode
from quorate.wire.jobs.zone_history import HISTORY_VARIABLE, ZoneHistory, encode_history
from quorate_operator import names
from quorate_operator.jobs.job import Copies, Json, Work, zone_arguments

DIFFERS = 1
"""The exit code of a validation that has proven a difference."""
COULD_NOT_TELL = 2
"""The exit code of a validation that proves nothing, or could not run."""
REPORTS = "/reports"
"""Where the volume of reports is in the pod."""
VALIDATION = Work(
    "validation",
    names.LABEL_VALIDATION,
    final_codes=(DIFFERS,),
    driver_only=(HISTORY_VARIABLE, "reports"),
)


def validation_work(
    validation: DataValidation, copies: Copies, history: ZoneHistory | None = None
) -> Work:
    """Return the work of its pod.  `history`: of the zone, for the report."""
    spec = validation.spec
    level, keys = f"--level={spec.level.lower()}", f"--keys={spec.keys.lower()}"
    options = [level, keys, *spec.limit_options]
    if spec.mode is not ValidationMode.LIVE:  # an image of an earlier version knows no other
        options.append(f"--mode={spec.mode.lower()}")
    work = VALIDATION
    if spec.mode is ValidationMode.IDLE:
        work = work._replace(final_codes=(DIFFERS, COULD_NOT_TELL))
    if history is not None:
        # No argument: an image of an earlier version would refuse it, and end without a verdict.
        # The kubelet would replace $(NAME) by another variable.
        value = encode_history(history).replace("$", "$$")
        work = work._replace(env=({"name": HISTORY_VARIABLE, "value": value},))
    if spec.report is not None:
        claim = spec.report.persistent_volume_claim
        options.append(f"--report={REPORTS}/{claim.path}/")
        volume: Json = {
            "name": "reports",
            "persistentVolumeClaim": {"claimName": claim.claim_name},
        }
        work = work._replace(volumes=(volume,), mounts=({"name": "reports", "mountPath": REPORTS},))
    arguments = zone_arguments("validate", spec.zone_ref.name, copies)
    return work._replace(arguments=(*arguments, *options))
