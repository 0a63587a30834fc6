"""The work of a ZoneRestore's pods: first one that looks, then one that imports.

    check    reads the manifest, and whether the zone is empty; tells the export's id
    import   imports exactly this export; it may have begun before, so each pod goes on

If the end of the first one is read late, clients may have written since, and another one looks.
Between the two the operator notes the import at the Zone, so that a zone with a part of the rows is
never Available, whatever ends when.
"""

from quorate.wire.exports.zone_restore import ZoneRestore
from quorate.wire.restoring import Restoring
from quorate_operator import names
from quorate_operator.jobs.backup_job import at_place, with_key
from quorate_operator.jobs.job import Copies, Work, zone_arguments

RESTORE = Work("restore", names.LABEL_RESTORE)
CHECK = RESTORE._replace(suffix="check")
CONTINUES = "--continue"
CHECKS_MAX = 20
"""Jobs of one ZoneRestore that look, one after the other."""


def check_work(restore: ZoneRestore, copies: Copies, begun: Restoring | None) -> Work:
    """Return the work of the pod that looks.  `begun`: an import of this place that was left."""
    if begun is None:
        return _work(CHECK, restore, copies, restore.spec.into_non_empty, "--check")
    known = (f"--export-id={begun.export_id}",) if begun.export_id else ()
    more = ("--check", CONTINUES, *known)
    return _work(CHECK, restore, copies, _into_non_empty(restore, begun), *more)


def later_checks(restore: ZoneRestore, job: str) -> list[str]:
    """Return the ends of the names of the Jobs that may look after this one, the next one first.

    An operator may not delete a Job, so each has a name of its own.  It ends as that of the first,
    so that operators of earlier versions take it for a check.
    """
    ends = [CHECK.suffix, *(f"look{each}-{CHECK.suffix}" for each in range(2, CHECKS_MAX + 1))]
    made = job.removeprefix(f"{restore.metadata.name}-")
    return ends[ends.index(made) + 1 :] if made in ends else ends[1:]


def import_work(restore: ZoneRestore, copies: Copies, mine: Restoring) -> Work:
    """Return the work of the pod that imports; `mine`: the note at the Zone."""
    more = (CONTINUES, f"--export-id={mine.export_id}")
    return _work(RESTORE, restore, copies, mine.into_non_empty, *more)


def note_of(restore: ZoneRestore, export_id: str, begun: Restoring | None) -> Restoring:
    """Return the note at the Zone of this import."""
    into_non_empty = _into_non_empty(restore, begun)
    return Restoring(
        restore.spec.source.text, export_id, run_word(restore.metadata.uid), into_non_empty
    )


def run_word(uid: str) -> str:
    """Return the word for a ZoneRestore with this uid in a note."""
    return uid.replace(".", "-")


def _into_non_empty(restore: ZoneRestore, begun: Restoring | None) -> bool:
    return restore.spec.into_non_empty or (begun is not None and begun.into_non_empty)


def _work(
    work: Work, restore: ZoneRestore, copies: Copies, into_non_empty: bool, *more: str
) -> Work:
    arguments = (
        *zone_arguments("import", restore.spec.zone_ref.name, copies),
        f"--target={restore.spec.source.target}",
        # An image that does not know it refuses it: it could write into another zone of this name.
        f"--zone-uid={copies.uid}",
        *restore.spec.limit_options,
        *more,
        *(("--into-non-empty",) if into_non_empty else ()),
    )
    labels = ((names.LABEL_ZONE_UID, copies.object_uid),)
    made = work._replace(arguments=arguments, labels=labels)
    placed = at_place(made, restore.spec.source, read_only=True)
    return with_key(placed, restore.spec.encryption_key_secret_ref)
