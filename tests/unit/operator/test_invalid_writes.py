"""A write that is answered with 422: by the API server's own schema, or by a webhook or policy."""

from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from quorate.facts.errors import InvariantError
from quorate.facts.topology import NodeRecord
from quorate.protocol.metastore import NodeKey, WriteRefused
from quorate_operator.kube.access import KubeAccess
from quorate_operator.kube.api import KubeApi
from quorate_operator.metastores.kubernetes import KubernetesMetastore

NODE = NodeRecord("agent-1", "store-1", 4, "127.0.0.1", 7100, "127.0.0.1")
OBJECT = 'StorageNode.quorate.io "main.agent-1"'
SCHEMA = f"{OBJECT} is invalid: spec.weight: Invalid value: 0: at least 1"
FIELD = {"reason": "FieldValueInvalid", "message": "Invalid value: 0", "field": "spec.weight"}
WITHOUT_FIELD = {"message": "at least 1"}
DENIED = 'admission webhook "w.example" denied the request: '
POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: at least 1"


async def answered(reason: str, message: str, causes: Sequence[Any]) -> Exception:
    """What the writer meets when the API server answers 422 so."""

    async def refuse(request: web.Request) -> web.Response:
        status = {"kind": "Status", "reason": reason, "message": message, "code": 422}
        return web.json_response({**status, "details": {"causes": causes}}, status=422)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(application) as server:
        api = KubeApi(KubeAccess(f"http://127.0.0.1:{server.port}", None), None)
        try:
            with pytest.raises((InvariantError, WriteRefused)) as met:
                await KubernetesMetastore(api, "default", "main").write(
                    NodeKey("agent-1"), NODE, None
                )
        finally:
            await api.close()
    return met.value


async def test_what_the_schema_refuses_is_a_state_that_must_not_exist() -> None:
    error = await answered("Invalid", SCHEMA, [FIELD])

    assert isinstance(error, InvariantError)
    assert "spec.weight" in str(error)


@pytest.mark.parametrize(
    ("reason", "message", "causes", "word"),
    [
        ("Invalid", DENIED + "at least 1", [FIELD], "Denied"),
        ("Invalid", DENIED + SCHEMA, [FIELD], "Denied"),
        ("Invalid", f"{OBJECT} is forbidden: {POLICY}", [FIELD], "Denied"),
        ("Invalid", f"{OBJECT} is forbidden: {POLICY}", [WITHOUT_FIELD], "Denied"),
        ("Invalid", "a gateway says no", [FIELD], "Invalid"),
        ("", SCHEMA, [FIELD], "Invalid"),
        ("Invalid", SCHEMA, [{**FIELD, "field": "metadata.labels"}], "Invalid"),
    ],
)
async def test_what_anything_else_refuses_blocks_and_ends_nothing(
    reason: str, message: str, causes: Sequence[Any], word: str
) -> None:
    error = await answered(reason, message, causes)

    assert isinstance(error, WriteRefused)
    assert error.reason == word
