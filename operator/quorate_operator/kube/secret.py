"""A cluster's secret on Kubernetes: the Secret CLUSTER-quorate in its namespace.

It is made when the cluster is first led.  An existing one is used as it is and never written again.
No object owns it, so a StorageCluster that is deleted and declared again is the same cluster to its
agents.
"""

import base64
import binascii
from collections.abc import Callable

from quorate_link.secret import (
    CLUSTER_ID,
    KEY,
    ClusterSecret,
    SecretRefused,
    draw_secret,
    parse_secret,
)
from quorate_operator import names
from quorate_operator.kube.api import ApiRefused, ApiUnclear, Json, KubeApi, MandateLost


def secret_name(cluster: str) -> str:
    """Return the name of a cluster's Secret."""
    return f"{cluster}-quorate"


async def cluster_secret(
    api: KubeApi, namespace: str, cluster: str, on_made: Callable[[], None] = lambda: None
) -> ClusterSecret:
    """Return the secret of the cluster; make it if there is none.  Raises SecretRefused.

    `on_made` is called when the secret was made: no agent has anything of this cluster yet.
    """
    collection = f"/api/v1/namespaces/{namespace}/secrets"
    name = secret_name(cluster)
    where = f"Secret {name} in namespace {namespace}"
    try:
        try:
            return _parse(where, await api.get(f"{collection}/{name}"))
        except ApiRefused as refused:
            if refused.status != 404:
                raise
        try:
            made = await api.create(collection, _manifest(name, cluster))
            on_made()
            return _parse(where, made)
        except ApiRefused as refused:
            if refused.status != 409:  # another process made it meanwhile
                raise
        return _parse(where, await api.get(f"{collection}/{name}"))
    except ApiRefused as refused:
        way_out = ""
        if refused.status == 403:
            way_out = (
                f". Way out: let the operator create secrets, and get {name}, as in"
                " examples/operator-role.yaml"
            )
        raise SecretRefused(f"{where}: {refused}{way_out}") from refused
    except (ApiUnclear, MandateLost) as error:
        raise SecretRefused(f"{where}: {error}") from error


def _manifest(name: str, cluster: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {names.LABEL_CLUSTER: cluster}},
        "type": "Opaque",
        "stringData": draw_secret().texts(),
    }


def _parse(where: str, found: Json) -> ClusterSecret:
    data = found.get("data") or {}
    return parse_secret(
        where, *(_decoded(where, name, data.get(name)) for name in (CLUSTER_ID, KEY))
    )


def _decoded(where: str, name: str, value: object) -> object:
    if not isinstance(value, str):
        return None
    try:
        return base64.b64decode(value, validate=True).decode().strip()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise SecretRefused(f"{where}: {name} is no text in base64 ({error})") from error
