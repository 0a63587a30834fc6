"""The work of a ZoneBackup's pod: it exports the zone, then reads the export back.

A pod after the first one finds by `--run` that the export is there already, and only reads it back.
An exit code of 1 says that it is not as it was written: another run finds the same.

Credentials, and the key of an encrypted export, are environment variables from Secrets, which only
the kubelet reads.  With credentials the pod does not ask the machine for its role: the library
would connect to the cloud's metadata service although it has everything, and wait where nothing
answers there.
"""

import time
from collections.abc import Sequence

import msgspec

from quorate.facts.export_place import BASE_FOLDER_OPTION, ENCRYPTED_OPTION, KEY_VARIABLE
from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.jobs.export_place import VOLUME, EncryptionKeyRef, ExportPlace
from quorate_operator import names
from quorate_operator.jobs.job import Copies, Json, Work, zone_arguments

NOT_AS_WRITTEN = 1
"""The exit code of an export that was read back and is not as it was written."""
BACKUP = Work("backup", names.LABEL_BACKUP, final_codes=(NOT_AS_WRITTEN,))
DELETE = "--delete="
"""The option that names a folder of an older export."""
ZONE_UID = "--zone-uid="
"""The option that says which data of the zone is exported."""
CREDENTIALS = (
    ("AWS_ACCESS_KEY_ID", False),
    ("AWS_SECRET_ACCESS_KEY", False),
    ("AWS_SESSION_TOKEN", True),
)
"""Keys of the Secret, which are the names of the variables, and whether it may lack them."""
NOT_OF_THE_MACHINE: Json = {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"}
"""Keeps the library from the metadata service, 169.254.169.254."""


def backup_work(
    backup: ZoneBackup,
    copies: Copies,
    schedule: str = "",
    old: Sequence[str] = (),
    base: str = "",
) -> Work:
    """Return the work of its pod.

    `schedule`: uid of the schedule that created it.  `old`: folders beside its own with earlier
    exports of this schedule, which the pod deletes once its own export is verified.  `base`: the
    folder of one of them, from which rows are taken; empty: of none.
    """
    spec = backup.spec
    options = (
        f"--target={spec.destination.target}",
        f"--run={backup.metadata.uid}",
        f"{ZONE_UID}{copies.uid}",
        f"--zone-spec={msgspec.json.encode(copies.spec).decode()}",
        "--verify",
        *spec.limit_options,
        *((f"--series={schedule}",) if schedule else ()),
        *((f"{BASE_FOLDER_OPTION}={base}",) if base else ()),
        *(f"{DELETE}{each}" for each in old),
        *((f"--ends-at={int(time.time()) + spec.deadline_seconds}",) if old else ()),
    )
    arguments = zone_arguments("export", spec.zone_ref.name, copies)
    made = at_place(BACKUP._replace(arguments=(*arguments, *options)), spec.destination)
    return with_key(made, spec.encryption_key_secret_ref)


def with_key(work: Work, key: EncryptionKeyRef | None) -> Work:
    """Return the work with the key of an encrypted export, which only the kubelet reads."""
    if key is None:
        return work
    chosen: Json = {"secretKeyRef": {"name": key.name, "key": key.key}}
    variable: Json = {"name": KEY_VARIABLE, "valueFrom": chosen}
    # An image that has no encryption fails: it has no such option.
    return work._replace(arguments=(*work.arguments, ENCRYPTED_OPTION), env=(*work.env, variable))


def at_place(work: Work, place: ExportPlace, read_only: bool = False) -> Work:
    """Return the work with the volume, or the credentials, of the place of an export."""
    claim, s3 = place.persistent_volume_claim, place.s3
    if claim is not None:
        volume: Json = {
            "name": "exports",
            "persistentVolumeClaim": {"claimName": claim.claim_name},
        }
        mount: Json = {"name": "exports", "mountPath": VOLUME}
        if read_only:
            mount["readOnly"] = True
        return work._replace(volumes=(volume,), mounts=(mount,))
    if s3 is None or s3.credentials_secret_ref is None:
        return work
    secret = s3.credentials_secret_ref.name
    variables = (_variable(secret, *each) for each in CREDENTIALS)
    return work._replace(env=(*variables, NOT_OF_THE_MACHINE))


def _variable(secret: str, name: str, may_lack: bool) -> Json:
    chosen: Json = {"name": secret, "key": name}
    if may_lack:
        chosen["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": chosen}}
