"""`kubectl quorate backup` and `restore`: a ZoneBackup, or a ZoneRestore, followed to its end."""

from collections.abc import Mapping

from rich.console import Console

from quorate.facts.errors import QuorateError
from quorate.wire.exports.export_result import RunOutcome
from quorate.wire.exports.zone_backup import ZoneBackup
from quorate.wire.exports.zone_restore import ZoneRestore
from quorate_cli.kubectl.kube_api import KubeApi
from quorate_cli.kubectl.options import Place
from quorate_cli.kubectl.runs.follow import OTHERWISE, Spec, print_end, print_json, run_to_end
from quorate_cli.terminal.problem import Problem

EXIT_CODES = {RunOutcome.COMPLETE: 0, RunOutcome.FAILED: 1, RunOutcome.UNKNOWN: OTHERWISE}
STYLES = {
    RunOutcome.COMPLETE: "bold green",
    RunOutcome.FAILED: "bold red",
    RunOutcome.UNKNOWN: "bold yellow",
}
KEY_REF = "encryptionKeySecretRef"
"""The field of a spec that names the Secret of a key."""


def place_of(place: str, bucket: Mapping[str, str], credentials_secret: str, option: str) -> Spec:
    """Return a place as an object names it.

    `option` is the one that names it, for messages.  Raises Problem.
    """
    of_bucket = {name: value for name, value in bucket.items() if value}
    if place.startswith("s3://"):
        secret = {"credentialsSecretRef": {"name": credentials_secret}}
        return {"s3": {"url": place, **of_bucket, **(secret if credentials_secret else {})}}
    if of_bucket or credentials_secret:
        raise Problem(
            "--endpoint, --region and --credentials-secret are of a bucket: write"
            f" {option} s3://BUCKET/FOLDER",
            OTHERWISE,
        )
    claim, separator, path = place.partition(":")
    if not (claim and separator and path):
        raise Problem(f"{option}: write CLAIM:FOLDER, or s3://BUCKET/FOLDER", OTHERWISE)
    return {"persistentVolumeClaim": {"claimName": claim, "path": path}}


def key_of(secret: str) -> Spec:
    """Return how an object names the key of an encrypted export; `secret`: SECRET or SECRET:KEY.

    Raises Problem.
    """
    if not secret:
        return {}
    name, separator, key = secret.partition(":")
    if not name or (separator and not key):
        raise Problem("--encryption-key-secret: write SECRET, or SECRET:KEY", OTHERWISE)
    return {KEY_REF: {"name": name, **({"key": key} if key else {})}}


def run_export(
    kind: type[ZoneBackup | ZoneRestore],
    zone: str,
    spec: Spec,
    place: Place,
    as_json: bool,
    console: Console,
) -> int:
    """Run a ZoneBackup or ZoneRestore and print its end; return the exit code."""
    try:
        api = KubeApi(place.kubeconfig, place.context)
        run, done = run_to_end(api, zone, kind, spec, place.namespace or api.namespace, place)
    except QuorateError as problem:
        raise Problem(str(problem), OTHERWISE) from problem
    status, outcome = done.status, done.status.outcome
    if as_json:
        print_json(status)
    elif outcome is not None:
        print_end(run, zone, outcome, STYLES[outcome], status, console)
    if outcome is None:
        raise Problem(f"{run.about}: {status.message}", OTHERWISE)
    if outcome is RunOutcome.COMPLETE and KEY_REF in spec and not status.encryption_key_id:
        raise Problem(
            f"{run.about} names no key with which the export is encrypted: it is in the clear, or"
            " the operator knows no encryption; apply the CRDs, upgrade the operator and the image"
            " of the target `spark`, and delete an export that is in the clear"
        )
    return EXIT_CODES[outcome]
