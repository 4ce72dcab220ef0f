"""Publishes one event with its body byte for byte; JetStream acknowledges it before the answer is sent."""

import asyncio
import re
import time
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, post
from litestar.params import FromPath, PathParameter
from litestar.types import Receive
from msgspec import Struct

from actors.configuration.problems import REGION_TEXT, is_region
from actors.errors import InvalidName, Unavailable
from actors.ids import event_id, split_receiver
from angarium.api.admission.gate import Caller, caller, needs
from angarium.api.api_state import ApiState, InjectedApi
from angarium.api.openapi.publishing import (
    PUBLISH_EVENT,
    PUBLISH_TO_RECEIVER,
    PUBLISH_UNTYPED_TO_RECEIVER,
)
from angarium.api.problems import Fault, ProblemRaised, hidden, invalid, not_found, result_of, unavailable
from angarium.api.requests.bodies import read_body
from angarium.api.requests.event_ids import ID_TEXT, is_id
from angarium.api.requests.headers import Headers, header, headers_by_name
from angarium.operations.events.accept import AcceptedEvent, accept, check_unsent
from angarium.operations.events.message import NewEvent, delivery_time
from streams.reading.messages import (
    CONTENT_TYPE_DEFAULT,
    TYPE_DEFAULT,
    is_content_type,
    type_problem,
    valid_trace_headers,
)

_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?\Z")
_KEY_TEXT = "1 to 255 printable ASCII characters"

Asked = Request[Any, Any, Any]

TO_SUBSCRIBERS = "/v1/tenants/{tenant:str}/events/{event:str}"
"""The path for publishing; `event` is a type here, and an id in a GET: one path needs one name for both."""
TO_RECEIVER = "/v1/tenants/{tenant:str}/receivers/{name:str}/events/{type:str}"
UNTYPED_TO_RECEIVER = "/v1/tenants/{tenant:str}/receivers/{name:str}/events"
_PATTERNS = [
    re.compile(re.sub(r"{(\w+):str}", r"(?P<\1>[^/]+)", path) + r"\Z")
    for path in (TO_SUBSCRIBERS, TO_RECEIVER, UNTYPED_TO_RECEIVER)
]


class Destination(Struct, frozen=True):
    """The destination of an event: all receivers that subscribe to its type, or the one with this name."""

    tenant: str
    type: str = TYPE_DEFAULT
    name: str = ""


def destination_of(path: str) -> Destination | None:
    """The destination in the path of a request that publishes one event; None for all other requests."""
    for pattern in _PATTERNS:
        if found := pattern.match(path):
            named = found.groupdict()
            event_type = named.get("event") or named.get("type") or TYPE_DEFAULT
            return Destination(named["tenant"], event_type, named.get("name", ""))
    return None


@post(
    TO_SUBSCRIBERS,
    status_code=202,
    opt=needs("publish"),
    **PUBLISH_EVENT,
)
async def publish_event(
    request: Asked,
    tenant: FromPath[str],
    event: Annotated[str, PathParameter(description="The event's type, such as order.created.")],
    api: InjectedApi,
) -> Response[bytes]:
    """Publish an event to every receiver of the tenant that subscribes to its type."""
    return await _respond(request, api, Destination(tenant, event))


@post(
    TO_RECEIVER,
    status_code=202,
    opt=needs("publish"),
    **PUBLISH_TO_RECEIVER,
)
async def publish_to_receiver(
    request: Asked, tenant: FromPath[str], name: FromPath[str], type: FromPath[str], api: InjectedApi
) -> Response[bytes]:
    """Publish an event to one receiver."""
    return await _respond(request, api, Destination(tenant, type, name))


@post(
    UNTYPED_TO_RECEIVER,
    status_code=202,
    opt=needs("publish"),
    **PUBLISH_UNTYPED_TO_RECEIVER,
)
async def publish_untyped_to_receiver(
    request: Asked, tenant: FromPath[str], name: FromPath[str], api: InjectedApi
) -> Response[bytes]:
    """Publish an event of the type `message` to one receiver."""
    return await _respond(request, api, Destination(tenant, name=name))


async def _respond(request: Asked, api: ApiState, destination: Destination) -> Response[bytes]:
    headers = headers_by_name(request.scope["headers"])
    accepted, rate_headers = await publish(api, caller(request), destination, headers, request.receive)
    return Response(
        msgspec.json.encode(accepted), status_code=202, media_type="application/json", headers=rate_headers
    )


async def publish(
    api: ApiState, who: Caller, destination: Destination, headers: Headers, receive: Receive
) -> tuple[AcceptedEvent, dict[str, str]]:
    """Check everything but the body, then read the body, then store it. Raises `ProblemRaised`.

    Returns the answer, and the headers with the caller's rate.
    """
    rate_headers = within_rate(api, who, 1)
    if problem := type_problem(destination.type):
        raise invalid(Fault(detail=problem))
    given_id, key = _ids(headers)
    content_type = header(headers, b"content-type") or CONTENT_TYPE_DEFAULT
    if not is_content_type(content_type):
        raise invalid(Fault(header="content-type", detail="at most 256 printable ASCII characters"))
    traceparent, tracestate = valid_trace_headers(
        header(headers, b"traceparent"), header(headers, b"tracestate")
    )
    region = header(headers, b"angarium-region")
    if region and not is_region(region):
        raise invalid(Fault(header="angarium-region", detail=REGION_TEXT))
    deliver_at = _deliver_at(headers)
    if destination.name:
        await must_exist(api, destination.tenant, destination.name)
    check_unsent(api.access)
    with api.limits.admit(destination.tenant) as admitted:
        body = await read_body(receive, headers, api.limits, admitted, api.access.settings.max_body)
        event = NewEvent(
            tenant=destination.tenant, name=destination.name, type=destination.type, body=body,
            id=given_id, key=key, deliver_at=deliver_at,
            content_type=content_type, traceparent=traceparent, tracestate=tracestate, region=region,
        )  # fmt: skip
        accepted = result_of(await accept(api.access, event))
    if not destination.name:
        accepted.matched = await api.matched(destination.tenant, destination.type)
    return accepted, rate_headers


def within_rate(api: ApiState, who: Caller, events: int) -> dict[str, str]:
    """Take this number of events from the caller's rate; returns headers with the rest.

    Raises `ProblemRaised`.
    """
    if who.token.rate is None:
        return {}
    standing = api.rates.take(who.id, who.token.rate, events, asyncio.get_running_loop().time())
    headers = standing.headers()
    if not standing.admitted:
        raised = ProblemRaised(429, "rate", f"the token may publish {who.token.rate:g} events a second")
        raised.headers |= headers | {"retry-after": str(standing.wait_s)}
        raise raised
    return headers


async def must_exist(api: ApiState, tenant: str, name: str) -> None:
    """Raises `ProblemRaised` if there is no such receiver."""
    receiver = f"{tenant}.{name}"
    try:
        split_receiver(receiver)
        there = await api.has(receiver)
    except InvalidName:
        raise hidden() from None
    except (Unavailable, TimeoutError):
        raise unavailable(f"NATS did not say whether there is a receiver {receiver}; send it again") from None
    if not there:
        raise not_found(f"there is no receiver {receiver}; nothing was published")


def _ids(headers: Headers) -> tuple[str, str]:
    """The event's id, and the key by which JetStream knows a repeat; both may be empty.

    Raises `ProblemRaised`. If there is a key and no id, the id is derived from the key: it stays the same
    even when JetStream has forgotten the key.
    """
    given_id = header(headers, b"angarium-id")
    if given_id and not is_id(given_id):
        raise invalid(Fault(header="angarium-id", detail=ID_TEXT))
    key = idempotency_key(headers)
    return given_id or (event_id(key, "", 0.0) if key else ""), key


def _deliver_at(headers: Headers) -> float:
    """The time for which the event waits, 0 if none is given. Raises `ProblemRaised`."""
    if not (text := header(headers, b"angarium-deliver-at")):
        return 0.0
    found = delivery_time(text, time.time())
    if isinstance(found, str):
        raise invalid(Fault(header="angarium-deliver-at", detail=found))
    return found


def idempotency_key(headers: Headers) -> str:
    """The key of a request, or nothing. Raises `ProblemRaised`.

    The key may be quoted, as in draft-ietf-httpapi-idempotency-key-header.
    """
    key = header(headers, b"idempotency-key")
    if b"idempotency-key" not in headers:
        return ""
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not _KEY.match(key):
        raise invalid(Fault(header="idempotency-key", detail=_KEY_TEXT))
    return key
