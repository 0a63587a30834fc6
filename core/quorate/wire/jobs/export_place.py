"""The place of an export as objects name it: a folder of a volume, or a prefix of a bucket.

Credentials are never in it: they are in a Secret, which only the pod reads.
"""

import re
from collections.abc import Callable
from typing import Annotated, ClassVar

from pydantic import Field

from quorate.wire.schema.resource import Part, Rule, Text
from quorate.wire.zone import ObjectName

VOLUME = "/exports"
"""Where the volume is in the pod."""
_FOLDER = "[A-Za-z0-9_-][A-Za-z0-9._-]*"
_PATH = f"^{_FOLDER}(/{_FOLDER})*$"
_URL = f"^s3://[A-Za-z0-9][A-Za-z0-9._-]*(/{_FOLDER})+$"
_ENDPOINT = "^https?://[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$"


def _matches(field: str, pattern: str, optional: bool = False) -> Callable[[Part, object], bool]:
    def holds(new: Part, old: object) -> bool:
        text = getattr(new, field)
        return (optional and not text) or re.fullmatch(pattern, text) is not None

    return holds


class ClaimPlace(Part):
    """A folder of a volume."""

    claim_name: Annotated[Text, Field(min_length=1, max_length=253)]
    """The PersistentVolumeClaim, in the same namespace."""
    path: Annotated[Text, Field(pattern=_PATH, max_length=500)]
    """The folder in the volume, such as library/monday.  It is made if it is not there."""


class S3Place(Part):
    """A prefix of a bucket, at AWS or another store with its interface."""

    url: Annotated[Text, Field(max_length=500)]
    """s3://BUCKET/FOLDER, without options and credentials."""
    region: Annotated[Text, Field(pattern="^([a-z0-9-]{1,64})?$", max_length=64)] = ""
    """The region of the bucket; empty: found by the bucket's name."""
    endpoint: Annotated[Text, Field(max_length=300)] = ""
    """The address of another store than AWS: https://minio.example:9000, or http://…"""
    credentials_secret_ref: ObjectName | None = None
    """A Secret in the same namespace with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and
    AWS_SESSION_TOKEN if there is one.  Absent: the role of the machine, where it has one."""

    # Not patterns: their refusal would show the value, and somebody may write credentials in it.
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "url",
            f"self.url.matches('{_URL}')",
            "write s3://BUCKET/FOLDER, of letters, digits, '.', '_' and '-', without credentials;"
            " these belong in the Secret of credentialsSecretRef, other options in fields",
            _matches("url", _URL),
            shows_value=False,
        ),
        Rule(
            "endpoint",
            f"self.endpoint == '' || self.endpoint.matches('{_ENDPOINT}')",
            "write https://HOST:PORT or http://HOST:PORT, without credentials and path",
            _matches("endpoint", _ENDPOINT, optional=True),
            shows_value=False,
        ),
    )


class EncryptionKeyRef(Part):
    """A Secret with the key that encrypts an export."""

    name: Annotated[Text, Field(min_length=1, max_length=253)]
    """The Secret, in the same namespace."""
    key: Annotated[Text, Field(pattern="^[-._a-zA-Z0-9]+$", max_length=253)] = "key"
    """The key of the Secret that has it: 16, 24 or 32 random bytes, in base64."""


class ExportPlace(Part):
    """The place of an export: one of these."""

    persistent_volume_claim: ClaimPlace | None = None
    """A folder of a volume."""
    s3: S3Place | None = None
    """A prefix of a bucket."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "s3",
            "has(self.persistentVolumeClaim) != has(self.s3)",
            "write persistentVolumeClaim or s3, one of them",
            lambda new, _: (new.persistent_volume_claim is None) != (new.s3 is None),
            shows_value=False,
        ),
    )

    @property
    def target(self) -> str:
        """The place as the program in the pod takes it."""
        claim = self.persistent_volume_claim
        if claim is not None:
            return f"{VOLUME}/{claim.path}"
        assert self.s3 is not None
        options = {"region": self.s3.region}
        scheme, _, host = self.s3.endpoint.partition("://")
        if host:
            options |= {"endpoint_override": host, "scheme": scheme}
        query = "&".join(f"{name}={value}" for name, value in options.items() if value)
        return f"{self.s3.url}?{query}" if query else self.s3.url

    @property
    def length(self) -> int:
        """Characters of the path or URL."""
        claim, s3 = self.persistent_volume_claim, self.s3
        return len(claim.path) if claim is not None else len(s3.url) if s3 is not None else 0

    def inside(self, folder: str) -> "ExportPlace":
        """Return the place of this folder in it."""
        claim, s3 = self.persistent_volume_claim, self.s3
        if claim is not None:
            claim = claim.model_copy(update={"path": f"{claim.path}/{folder}"})
        if s3 is not None:
            s3 = s3.model_copy(update={"url": f"{s3.url}/{folder}"})
        return ExportPlace(persistent_volume_claim=claim, s3=s3)

    @property
    def text(self) -> str:
        """The place as people are told it."""
        claim = self.persistent_volume_claim
        return f"{claim.claim_name}:{claim.path}" if claim is not None else self.target
