"""The place of an export as it is written: a folder, or a URI.

Credentials are never in it, as it is shown and logged: what may have some is refused, unprinted.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from quorate.facts.errors import QuorateError

KEY_VARIABLE = "QUORATE_EXPORT_KEY"
"""The environment variable that may have the key of an encrypted export."""
KEY_FILE_OPTION = "--encryption-key-file"
"""The option of commands that names the file of the key; it goes before the variable."""
ENCRYPTED_OPTION = "--encrypted"
"""The option of commands that refuses to go on without a key."""
BASE_OPTION = "--base"
"""The option of an export that names an earlier one, from which rows are taken."""
BASE_FOLDER_OPTION = "--base-folder"
"""The same, by the name of a folder beside the new export; it may have no export."""
SCHEMES = ("file", "s3", "gs", "abfs", "abfss")
S3_OPTIONS = ("region", "endpoint_override", "scheme")
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")


class PlaceRefused(QuorateError):
    """The text is no place of an export; the message is a sentence with the way out."""


class Place(NamedTuple):
    """A place; a folder has no `scheme`.  `bucket` is the host where the scheme has one."""

    scheme: str
    bucket: str
    path: str
    options: dict[str, str]


def parse_place(text: str) -> Place:
    """Return the place that `text` names.  Raises PlaceRefused."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Place("", "", text, {})
    if scheme not in SCHEMES:
        named = f"{scheme}://…" if scheme.isalnum() else "the target"
        raise PlaceRefused(
            f"{named}: write a folder, or a URI that begins with"
            f" {', '.join(f'{each}://' for each in SCHEMES)}"
        )
    address, _, query = rest.partition("?")
    bucket, slash, path = address.partition("/")
    if "@" in unquote(bucket if scheme == "file" else rest) or ":" in unquote(bucket):
        raise PlaceRefused(
            f"{scheme}://…: there are credentials in the address, or a character as of some (: or"
            " @), and others can read it: give credentials in environment variables, or in the"
            " files that the provider's tools read"
        )
    if scheme == "file":
        return Place(scheme, bucket, slash + path, {})
    if _BUCKET.fullmatch(bucket) is None:
        raise PlaceRefused(
            f"{scheme}://…: {bucket or 'nothing'} is no name of a bucket: write"
            f" {scheme}://BUCKET/FOLDER"
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    known = S3_OPTIONS if scheme == "s3" else ()
    if unknown := sorted(set(options) - set(known)):
        raise PlaceRefused(
            f"{scheme}://{address}: option {unknown[0]} is not known: write"
            f" {', '.join(known) or 'none'}"
        )
    return Place(scheme, bucket, slash + path, {k: v for k, v in options.items() if v})
