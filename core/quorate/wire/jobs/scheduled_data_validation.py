"""The custom resource ScheduledDataValidation: DataValidations that are created by a schedule."""

from pydantic import Field

from quorate.wire.jobs.data_validation import ValidationRun
from quorate.wire.jobs.schedule import NAME_LENGTH_MAX, ScheduleSpec, ScheduleStatus
from quorate.wire.managed_agents import Labels
from quorate.wire.schema.resource import Part, Resource, name_rule


class ValidationTemplate(Part):
    """The DataValidations that are created."""

    labels: Labels = Field(default_factory=dict)
    """Labels of each DataValidation, besides the operator's."""
    spec: ValidationRun
    """Its spec."""


class ScheduledDataValidationSpec(ScheduleSpec):
    """When a zone's copies are compared, and how."""

    template: ValidationTemplate
    """What is created."""


class ScheduledDataValidationStatus(ScheduleStatus):
    """The state of the schedule."""


class ScheduledDataValidation(Resource):
    """DataValidations that are created by a schedule."""

    plural = "scheduleddatavalidations"
    short_name = "sdv"
    has_status = True
    printer_columns = (
        ("Zone", "string", ".spec.template.spec.zoneRef.name"),
        ("Schedule", "string", ".spec.schedule"),
        ("Time zone", "string", ".spec.timeZone"),
        ("Suspend", "boolean", ".spec.suspend"),
        ("Last", "date", ".status.lastScheduleTime"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    rules = (name_rule("ScheduledDataValidation", NAME_LENGTH_MAX),)

    spec: ScheduledDataValidationSpec
    status: ScheduledDataValidationStatus = Field(default_factory=ScheduledDataValidationStatus)
