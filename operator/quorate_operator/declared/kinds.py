"""The kinds of objects that the controller works on, and the keys of its queue."""

import enum
from typing import NamedTuple

from quorate.wire.exports.scheduled_zone_backup import ScheduledZoneBackup
from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.jobs.data_validation import DataValidation
from quorate.wire.jobs.scheduled_data_validation import ScheduledDataValidation
from quorate.wire.jobs.zone_repair import ZoneRepair
from quorate.wire.zone_recovery import ZoneRecovery


class Kind(enum.StrEnum):
    """Kind of object that a key names; also a label of metrics."""

    CLUSTER = "storagecluster"
    ZONE = "zone"
    RECOVERY = "zonerecovery"
    VALIDATION = "datavalidation"
    SCHEDULE = "scheduleddatavalidation"
    BACKUP = "zonebackup"
    BACKUP_SCHEDULE = "scheduledzonebackup"
    RESTORE = "zonerestore"
    REPAIR = "zonerepair"
    EVENTS = "events"
    """The Events about a cluster and its zones; the key has the cluster's name."""


RUNS = {
    ZoneRecovery.plural: Kind.RECOVERY,
    DataValidation.plural: Kind.VALIDATION,
    ScheduledDataValidation.plural: Kind.SCHEDULE,
    ZoneBackup.plural: Kind.BACKUP,
    ScheduledZoneBackup.plural: Kind.BACKUP_SCHEDULE,
    ZoneRestore.plural: Kind.RESTORE,
    ZoneRepair.plural: Kind.REPAIR,
}
"""Plural -> kind, of objects of which each is a run or a schedule."""


class Key(NamedTuple):
    """One object to be processed."""

    kind: Kind
    name: str
