"""The HTTP API of the embedded operator: declared objects, status, events, metrics.

Paths and formats are those of the Kubernetes API where it has them, so that tools differ little.
Errors are JSON with a sentence in `message`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web

from quorate.facts.errors import WireError
from quorate.protocol.messages.events import EventPage, ToldEvent
from quorate.protocol.metastore import OutcomeUnknown
from quorate.protocol.recovery import Recovery, RecoveryAnswer
from quorate.protocol.storage import COUNTER_MAX
from quorate.wire.schema.resource import API_VERSION, DeletionPolicy
from quorate.wire.zone import Zone
from quorate_operator.declared.acceptance import pause_of
from quorate_operator.embedded.api_guard import make_guard
from quorate_operator.embedded.json_body import read_object
from quorate_operator.embedded.judgement import refusals
from quorate_operator.embedded.objects import KINDS, BeingDeleted, Changed, Kept, Object, Seen
from quorate_operator.embedded.operator import CLUSTERS, ZONES, Embedded
from quorate_operator.mastership.runner import Runner
from quorate_operator.process.health import add_health

BODY_BYTES_MAX = 1024 * 1024
NEW_NODES_MAX = 1000
WAIT_MAX_S = 60
_ROOT = f"/apis/{API_VERSION}"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(embedded: Embedded, token: str) -> web.Application:
    """Return the API of one embedded operator; requests must show `token`."""
    api = Api(embedded)
    guard = make_guard(token, embedded.metrics)
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[guard, _errors_as_json])
    app.add_routes(
        [
            web.get(f"{_ROOT}/{{plural}}", api.list_objects),
            web.get(f"{_ROOT}/{{plural}}/{{name}}", api.get_object),
            web.put(f"{_ROOT}/{{plural}}/{{name}}", api.put_object),
            web.delete(f"{_ROOT}/{{plural}}/{{name}}", api.delete_object),
            web.post("/judge", api.judge),
            web.get("/status", api.status),
            web.get("/plan/{zone}", api.plan),
            web.post("/zones/{zone}/recover", api.recover),
            web.get("/events", api.events),
            web.post("/nodes/{name}/{action:drain|undrain}", api.drain),
            web.delete("/nodes/{name}", api.forget_node),
        ]
    )
    add_health(app, embedded)

    async def stop_waiting(_: web.Application) -> None:
        embedded.stop_telling()

    app.on_shutdown.append(stop_waiting)
    return app


def make_runner(embedded: Embedded, token: str) -> web.AppRunner:
    """Return the server of the API.

    Bodies are taken as sent: an error of decompression would occur outside of any handler.
    """
    return web.AppRunner(make_app(embedded, token), access_log=None, auto_decompress=False)


class Api:
    """The handlers."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded

    async def list_objects(self, request: web.Request) -> web.Response:
        """Return all objects of a kind."""
        plural = _plural(request)
        items = [self._embedded.with_status(each) for each in self._embedded.objects.list(plural)]
        kind = f"{KINDS[plural].kind_name()}List"
        return _json({"apiVersion": API_VERSION, "kind": kind, "items": items})

    async def get_object(self, request: web.Request) -> web.Response:
        """Return one object."""
        plural, name = _plural(request), request.match_info["name"]
        found = self._embedded.objects.get(plural, name)
        if found is None:
            return _no_such(plural, name)
        return _json(self._embedded.with_status(found))

    async def put_object(self, request: web.Request) -> web.Response:
        """Create or change an object; `?uid=…&generation=…&restoring=…`: only one that is so."""
        plural, name = _plural(request), request.match_info["name"]
        generation = request.query.get("generation", "0")
        if not _is_number(generation, COUNTER_MAX):
            return _json({"message": f"generation is {generation!r}: write a number"}, 422)
        if not request.query.get("uid") and {"generation", "restoring"} & {*request.query}:
            return _json(
                {"message": "generation and restoring are of one object: write its uid too"}, 422
            )
        seen = Seen(
            request.query.get("uid", ""), int(generation), request.query.get("restoring", "")
        )
        manifest = await _body(request)
        if isinstance(manifest, web.Response):
            return manifest
        kept = self._embedded.kept_name(name) if plural == ZONES else ""
        if kept:
            return _json({"message": kept}, 409)
        try:
            made, is_new = await self._embedded.objects.put(
                plural, name, manifest, seen if seen.uid else None
            )
        except WireError as error:
            return _json({"message": str(error)}, 422)
        except BeingDeleted as error:
            return _json({"message": str(error)}, 409)
        except Changed as error:
            return _json({"message": str(error)}, 412)
        self._embedded.changed()
        return _json(self._embedded.with_status(made), 201 if is_new else 200)

    async def judge(self, request: web.Request) -> web.Response:
        """Return why each of `items` would be refused if declared together; change nothing."""
        body = await _body(request)
        if isinstance(body, web.Response):
            return body
        items = body.get("items")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            return _json({"message": "the body has no items: write a list of manifests"}, 400)
        return _json({"refusals": refusals(self._embedded, items)})

    async def delete_object(self, request: web.Request) -> web.Response:
        """Delete an object: a zone after its data, a cluster at once (its agents keep their
        data)."""
        plural, name = _plural(request), request.match_info["name"]
        objects = self._embedded.objects
        found = objects.get(plural, name)
        if found is None:
            return _no_such(plural, name)
        if plural == ZONES:
            try:
                found = await objects.mark_deleted(plural, name, self._why_kept) or found
            except Kept as error:
                return _json({"message": str(error)}, 409)
        else:
            await objects.remove(plural, name)
        self._embedded.changed()
        return _json(found, 202 if plural == ZONES else 200)

    def _why_kept(self, made: Object) -> str:
        """Return why this Zone must not be deleted as it is; empty if it may."""
        if made["spec"].get("deletionPolicy") == DeletionPolicy.RETAIN:
            return _retained(made["metadata"]["name"])
        pause = pause_of(Zone.kind_name(), self._embedded.objects.parsed(Zone, made).metadata)
        return f"{pause}, then delete it" if pause else ""

    async def status(self, request: web.Request) -> web.Response:
        """Return the whole status of one cluster."""
        known = [made["metadata"]["name"] for made in self._embedded.objects.list(CLUSTERS)]
        if not known and "cluster" not in request.query:
            nothing = {"cluster": "", "master_term": 0, "nodes": [], "zones": []}
            return _json({**nothing, "identity": self._embedded.identity, "problem": ""})
        runner, name, refusal = self._pick(request)
        if runner is None:
            return refusal
        return _json(
            {
                "cluster": name,
                "identity": self._embedded.identity,
                "problem": runner.problem,
                **msgspec.to_builtins(runner.status()),
            }
        )

    async def plan(self, request: web.Request) -> web.Response:
        """Preview a zone's migrations without nodes (`?without=NODE`, repeatable) or `?with=N`
        more."""
        name, more = request.match_info["zone"], request.query.get("with", "0")
        found = self._embedded.objects.get(ZONES, name)
        if found is None:
            return _no_such(ZONES, name)
        if not _is_number(more, NEW_NODES_MAX):
            return _json(
                {"message": f"with is {more!r}: write a number from 0 to {NEW_NODES_MAX}"}, 422
            )
        runner = self._embedded.runner(found["spec"]["clusterRef"]["name"])
        try:
            plan = runner and runner.preview(
                found["metadata"]["uid"], request.query.getall("without", []), int(more)
            )
        except ValueError as error:
            return _json({"message": str(error)}, 422)
        if plan is None:
            return _json({"message": f"Zone {name} is not led yet: try again soon"}, 503)
        return _json(plan)

    async def recover(self, request: web.Request) -> web.Response:
        """Do what a person decides about partitions of a zone (Recovery), or say what it does.

        It is done once its rows are stored: before that, an end of the operator could undo it.
        """
        name = request.match_info["zone"]
        found = self._embedded.objects.get(ZONES, name)
        if found is None:
            return _no_such(ZONES, name)
        body = await _body(request)
        if isinstance(body, web.Response):
            return body
        try:
            asked = msgspec.convert(body, Recovery, strict=False)
        except msgspec.ValidationError as error:
            return _json({"message": f"the body cannot be read: {error}"}, 422)
        runner = self._embedded.runner(found["spec"]["clusterRef"]["name"])
        uid = found["metadata"]["uid"]
        told = runner.recover(uid, asked) if runner is not None else None
        if runner is None or told is None:
            return _json({"message": f"Zone {name} is not led yet: try again soon"}, 503)
        if told.refusals:
            return _json({"message": "; ".join(told.refusals)}, 409)
        if not asked.dry_run:
            await runner.rows_stored(uid, told)
        shown = [msgspec.structs.replace(each, row=None) for each in told.partitions]
        return _json(RecoveryAnswer(tuple(shown)))

    async def events(self, request: web.Request) -> web.Response:
        """Return events after `?after=N`, else the present state; `&zone=NAME`; `&wait=SECONDS`.

        A client that may have missed events gets the remembered ones, then the state of every zone.
        """
        runner, cluster, refusal = self._pick(request)
        if runner is None:
            return refusal
        if not runner.is_leading:
            return _json({"message": f"cluster {cluster} is not led: {runner.problem}"}, 503)
        after, wait = request.query.get("after", ""), request.query.get("wait", "0")
        zone = request.query.get("zone", "")
        if after and not _is_number(after, COUNTER_MAX):
            return _json({"message": f"after is {after!r}: write an event's sequence"}, 422)
        if not _is_number(wait, WAIT_MAX_S):
            return _json(
                {"message": f"wait is {wait!r}: write seconds from 0 to {WAIT_MAX_S}"}, 422
            )
        if zone and self._embedded.objects.get(ZONES, zone) is None:
            return _no_such(ZONES, zone)
        if not after:
            return _json(EventPage(cluster, _of_zone(runner.states(), zone), runner.events.last))
        loop = asyncio.get_running_loop()
        until, seen = loop.time() + int(wait), int(after)
        while True:
            found, missed = runner.events.after(seen)
            told = _of_zone([*found, *(runner.states() if missed else ())], zone)
            seen = runner.events.last
            left = until - loop.time()
            if told or missed or left <= 0 or runner.events.is_closed:
                return _json(EventPage(cluster, told, seen))
            await runner.events.wait(seen, left)

    async def drain(self, request: web.Request) -> web.Response:
        """Begin to move everything off a node, or stop that."""
        runner, _, refusal = self._pick(request)
        if runner is None:
            return refusal
        draining = request.match_info["action"] == "drain"
        return _done(await runner.drain(request.match_info["name"], draining))

    async def forget_node(self, request: web.Request) -> web.Response:
        """Remove the registration of a node that holds nothing."""
        runner, _, refusal = self._pick(request)
        if runner is None:
            return refusal
        return _done(await runner.forget_node(request.match_info["name"]))

    def _pick(self, request: web.Request) -> tuple[Runner | None, str, web.Response]:
        """Return the cluster that a request names, or the only one; else the refusal."""
        known = [made["metadata"]["name"] for made in self._embedded.objects.list(CLUSTERS)]
        name = request.query.get("cluster") or (known[0] if len(known) == 1 else "")
        if not name:
            there = f"there are {', '.join(known)}" if known else "there is none: create one"
            return None, "", _json({"message": f"name a cluster by ?cluster=NAME; {there}"}, 400)
        runner = self._embedded.runner(name)
        if runner is not None:
            return runner, name, web.Response()
        if name in known:
            return None, name, _json({"message": f"StorageCluster {name} is not led yet"}, 503)
        return None, name, _no_such(CLUSTERS, name)


@web.middleware
async def _errors_as_json(request: web.Request, handler: _Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _json(
            {"message": f"the body is too long: write {BODY_BYTES_MAX} bytes at most"}, 413
        )
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _json({"message": f"{request.method} {request.path}: {error.reason}"}, error.status)
    except OutcomeUnknown as error:
        return _json({"message": f"whether it was done is unknown: {error}"}, 503)


async def _body(request: web.Request) -> dict[str, Any] | web.Response:
    """Return the JSON object in a request's body, or the response that refuses it."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        return _json({"message": f"Content-Encoding is {encoding}: send the body as it is"}, 415)
    try:
        return read_object(await request.read())
    except WireError as error:
        return _json({"message": str(error)}, 400)


def _plural(request: web.Request) -> str:
    plural = request.match_info["plural"]
    if plural not in KINDS:
        raise web.HTTPNotFound(reason=f"no kind {plural}: the kinds are {', '.join(KINDS)}")
    return plural


def _is_number(text: str, highest: int) -> bool:
    """Return whether `text` is a number from 0 to `highest`; long texts are never parsed."""
    return text.isdecimal() and len(text) <= len(str(highest)) and int(text) <= highest


def _of_zone(events: Sequence[ToldEvent], zone: str) -> tuple[ToldEvent, ...]:
    """Return the events of a zone and of agents; without a zone all events."""
    return tuple(event for event in events if not zone or event.zone in (zone, ""))


def _no_such(plural: str, name: str) -> web.Response:
    return _json({"message": f"{KINDS[plural].kind_name()} {name} does not exist"}, 404)


def _retained(name: str) -> str:
    return (
        f"Zone {name}: spec.deletionPolicy is Retain, but this operator deletes data with its "
        "zone: to delete both, apply the zone with deletionPolicy: Delete, then delete it"
    )


def _done(refusal: str) -> web.Response:
    return _json({"message": refusal}, 409) if refusal else _json({})


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )
