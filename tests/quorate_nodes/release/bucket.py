"""A bucket outside the cluster that pods reach, as the runs of Quorate's kinds are told of it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyarrow.fs import S3FileSystem

from quorate_nodes.cluster import Json
from quorate_nodes.release.installed import Installed
from quorate_s3.server import s3_server

SECRET = "never-to-be-told"
"""The key that opens the bucket."""
_BUCKET, _CREDENTIALS = "backups", "keys-of-s3"


@contextmanager
def bucket(installed: Installed, path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Json]:
    """The place of an export in a new bucket, with a Secret of its credentials."""
    with s3_server(installed.nodes.network.machine) as endpoint, monkeypatch.context() as patched:
        patched.setenv("AWS_ACCESS_KEY_ID", "someone")
        patched.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        store = {"endpoint_override": endpoint, "scheme": "http"}
        S3FileSystem(**store, allow_bucket_creation=True).create_dir(_BUCKET)
        keys = ("AWS_ACCESS_KEY_ID=someone", f"AWS_SECRET_ACCESS_KEY={SECRET}")
        literals = (f"--from-literal={each}" for each in keys)
        installed.kubectl("create", "secret", "generic", _CREDENTIALS, *literals)
        try:
            yield {
                "s3": {
                    "url": f"s3://{_BUCKET}/{path}",
                    "region": "us-east-1",
                    "endpoint": f"http://{endpoint}",
                    "credentialsSecretRef": {"name": _CREDENTIALS},
                }
            }
        finally:
            installed.kubectl("delete", "secret", _CREDENTIALS)
