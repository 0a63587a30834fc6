"""The ScheduledDataValidations of one namespace."""

from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.scheduled_data_validation import (
    ScheduledDataValidation,
    ScheduledDataValidationStatus,
)
from quorate_operator.declared.runs.scheduled_run import ScheduledRun
from quorate_operator.declared.runs.schedules.schedules import Schedules
from quorate_operator.declared.runs.validations import Validations
from quorate_operator.kube.api import KubeApi


class ValidationSchedules(Schedules[ScheduledDataValidationStatus]):
    """The ScheduledDataValidations of one namespace; `validations`: its DataValidations."""

    kind = ScheduledDataValidation
    run_kind = DataValidation

    def __init__(self, api: KubeApi, namespace: str, validations: Validations) -> None:
        super().__init__(ScheduledDataValidationStatus, api, namespace)
        self._validations = validations

    def _runs(self, schedule: str) -> list[ScheduledRun]:
        return self._validations.runs(schedule)
