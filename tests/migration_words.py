"""How tests call what a migration does, how far it is and who takes part: one word for each."""

import enum

from quorate.facts.partition_row import MigrationKind, PartitionRow


class Kind(enum.StrEnum):
    """What a migration does to its row; the two kinds of MOVE go different ways."""

    MOVE_PRIMARY = "MOVE of primary"
    MOVE_BACKUP = "MOVE of backup"
    COPY = "COPY"
    SHIFT_UP = "SHIFT_UP"
    SHIFT_DOWN = "SHIFT_DOWN"
    SWAP = "SWAP"
    DROP = "DROP"


WITH_NEWCOMER = (Kind.MOVE_PRIMARY, Kind.MOVE_BACKUP, Kind.COPY, Kind.SHIFT_DOWN)
"""Somebody comes who has no copy yet: it is filled."""
WITH_NEW_PRIMARY = (Kind.MOVE_PRIMARY, Kind.SHIFT_DOWN, Kind.SWAP)
"""The primary changes: the old one freezes."""
WITH_DESTINATION = (*WITH_NEWCOMER, Kind.SWAP)
"""Somebody stores the prepared row."""
WITH_LEAVER = (Kind.MOVE_PRIMARY, Kind.MOVE_BACKUP, Kind.DROP)
"""Somebody deletes its copy."""


class Moment(enum.StrEnum):
    """How far a migration is, in order."""

    START = "start"
    """The metastore holds the row in which it is active."""
    FILLING = "filling"
    """Its destination is sent what it lacks."""
    CAUGHT_UP = "caught up"
    """The primary says so: it is in joint mode."""
    FROZEN = "frozen"
    """The old primary says that it will not serve again."""
    PREPARED_ROW_SENT = "prepared row sent"
    """The master asks the destination to store it."""
    PREPARED_ROW_STORED = "prepared row stored"
    """The destination says that it has, durably."""
    MIGRATION_COMMIT = "migration commit"
    """The metastore holds the row after the migration; nobody else has it."""
    PUBLISHED = "published"
    """The first agent has that row: the destination; where there is none, the primary."""
    SOURCE_DELETES = "source deletes"
    """The others have it too; the source is told, and deletes its copy."""


MOMENTS = tuple(Moment)
"""In order: a migration never comes to an earlier one."""


class Role(enum.StrEnum):
    """Who takes part in a migration."""

    MASTER = "master"
    PRIMARY = "primary"
    SOURCE = "source"
    """Who gives up its place."""
    DESTINATION = "destination"
    BYSTANDER = "bystander"
    """A backup that stays what it is."""


def why_impossible(kind: Kind, moment: Moment, role: Role) -> str:
    """Why a migration of that kind has not that moment, or nobody in that role; "" when it has."""
    if moment is Moment.FILLING and kind not in WITH_NEWCOMER:
        return "nothing is filled where nobody comes"
    if moment is Moment.FROZEN and kind not in WITH_NEW_PRIMARY:
        return "nobody freezes where the primary stays"
    prepared = (Moment.PREPARED_ROW_SENT, Moment.PREPARED_ROW_STORED)
    if moment in prepared and kind not in WITH_DESTINATION:
        return "nobody prepares where there is no destination"
    if moment is Moment.SOURCE_DELETES and kind not in WITH_LEAVER:
        return "nobody deletes where nobody leaves"
    if role is Role.DESTINATION and kind not in WITH_DESTINATION:
        return "SHIFT_UP and DROP have no destination"
    if role is Role.PRIMARY and kind not in (Kind.MOVE_BACKUP, Kind.DROP):
        return "the primary is the source, but where a backup leaves"
    return ""


def kind_of(row: PartitionRow) -> Kind | None:
    """What the row's migration does; None when it has none."""
    migration = row.active
    if migration is None:
        return None
    if migration.kind is MigrationKind.MOVE:
        stays = row.primary is not None and migration.replicas[0] == row.primary.node
        return Kind.MOVE_BACKUP if stays else Kind.MOVE_PRIMARY
    return Kind(migration.kind)
