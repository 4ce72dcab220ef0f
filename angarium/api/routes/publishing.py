"""Publishing: one event, its body byte for byte as it came, acknowledged by JetStream before the answer."""

import asyncio
import re
from typing import Any

import msgspec
from litestar import Request, Response, post
from litestar.params import FromPath
from litestar.types import Receive
from msgspec import Struct

from actors.errors import InvalidName, Unavailable
from actors.ids import event_id as event_id_of
from actors.ids import split_receiver
from angarium.api.bodies import Headers, header, heads, read
from angarium.api.gate import Caller, caller, needs
from angarium.api.live import Live, TheLive
from angarium.api.openapi import publishing
from angarium.api.problems import Fault, Refusal, answered, hidden, invalid, not_found, unavailable
from angarium.operations.accept import Accepted, NewEvent, accept
from streams.reading.messages import CONTENT_TYPE_DEFAULT, TYPE_DEFAULT, is_content_type, trace, type_problem

_ID = re.compile(r"[A-Za-z0-9_:-]{1,128}\Z")
ID_TEXT = "1 to 128 of A-Z a-z 0-9 _ - :"
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?\Z")
_KEY_TEXT = "1 to 255 printable ASCII characters"

Asked = Request[Any, Any, Any]


class Way(Struct, frozen=True):
    """The way of an event: to all that subscribe to its type, or to the one receiver of that name."""

    tenant: str
    type: str
    name: str = ""


@post(
    "/v1/tenants/{tenant:str}/events/{type:str}",
    status_code=202,
    opt=needs("publish"),
    **publishing.fan_out,
)
async def fan_out(
    request: Asked, tenant: FromPath[str], type: FromPath[str], live: TheLive
) -> Response[bytes]:
    """Publish an event to every receiver of the tenant that subscribes to its type."""
    return await _respond(request, live, Way(tenant, type))


@post(
    "/v1/tenants/{tenant:str}/receivers/{name:str}/events/{type:str}",
    status_code=202,
    opt=needs("publish"),
    **publishing.direct,
)
async def direct(
    request: Asked, tenant: FromPath[str], name: FromPath[str], type: FromPath[str], live: TheLive
) -> Response[bytes]:
    """Publish an event to one receiver."""
    return await _respond(request, live, Way(tenant, type, name))


@post(
    "/v1/tenants/{tenant:str}/receivers/{name:str}/events",
    status_code=202,
    opt=needs("publish"),
    **publishing.direct_untyped,
)
async def direct_untyped(
    request: Asked, tenant: FromPath[str], name: FromPath[str], live: TheLive
) -> Response[bytes]:
    """Publish an event of the type `message` to one receiver."""
    return await _respond(request, live, Way(tenant, TYPE_DEFAULT, name))


async def _respond(request: Asked, live: Live, way: Way) -> Response[bytes]:
    headers = heads(request.scope["headers"])
    accepted, told = await publish(live, caller(request), way, headers, request.receive)
    return Response(
        msgspec.json.encode(accepted), status_code=202, media_type="application/json", headers=told
    )


async def publish(
    live: Live, who: Caller, way: Way, headers: Headers, receive: Receive
) -> tuple[Accepted, dict[str, str]]:
    """Check all that can be checked without the body, then read it, then store it. Raises `Refusal`.

    Returns what is answered, and the headers that tell of the caller's rate.
    """
    told = within_rate(live, who, 1)
    if problem := type_problem(way.type):
        raise invalid(Fault(detail=problem))
    event_id, key = _ids(headers)
    content_type = header(headers, b"content-type") or CONTENT_TYPE_DEFAULT
    if not is_content_type(content_type):
        raise invalid(Fault(header="content-type", detail="at most 256 printable ASCII characters"))
    traceparent, tracestate = trace(header(headers, b"traceparent"), header(headers, b"tracestate"))
    if way.name:
        await must_exist(live, way.tenant, way.name)
    with live.room.seat(way.tenant) as seat:
        body = await read(receive, headers, live.room, seat, live.access.settings.max_body)
        event = NewEvent(
            tenant=way.tenant, name=way.name, type=way.type, body=body, id=event_id, key=key,
            content_type=content_type, traceparent=traceparent, tracestate=tracestate,
        )  # fmt: skip
        accepted = answered(await accept(live.access, event))
    if not way.name:
        accepted.matched = await live.matched(way.tenant, way.type)
    return accepted, told


def within_rate(live: Live, who: Caller, events: int) -> dict[str, str]:
    """Take so many events of the caller's rate; returns the headers that tell of it. Raises `Refusal`."""
    if who.token.rate is None:
        return {}
    standing = live.rates.take(who.id, who.token.rate, events, asyncio.get_running_loop().time())
    headers = standing.headers()
    if not standing.admitted:
        refused = Refusal(429, "rate", f"the token may publish {who.token.rate:g} events a second")
        refused.headers |= headers | {"retry-after": str(standing.wait_s)}
        raise refused
    return headers


async def must_exist(live: Live, tenant: str, name: str) -> None:
    """Raises `Refusal` where there is no such receiver."""
    receiver = f"{tenant}.{name}"
    try:
        split_receiver(receiver)
        there = await live.has(receiver)
    except InvalidName:
        raise hidden() from None
    except (Unavailable, TimeoutError):
        raise unavailable(f"NATS does not say whether there is a receiver {receiver}") from None
    if not there:
        raise not_found(f"there is no receiver {receiver}; nothing was published")


def _ids(headers: Headers) -> tuple[str, str]:
    """The event's id, and the key by which JetStream knows a repeat; both may be empty. Raises `Refusal`.

    The key may stand in quotes, as draft-ietf-httpapi-idempotency-key-header has it. Where there is a key and
    no id, the id is made of it: the same for the same key, also when JetStream has forgotten that.
    """
    event_id, key = header(headers, b"angarium-id"), header(headers, b"idempotency-key")
    if event_id and not is_id(event_id):
        raise invalid(Fault(header="angarium-id", detail=ID_TEXT))
    if b"idempotency-key" not in headers:
        return event_id, ""
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not _KEY.match(key):
        raise invalid(Fault(header="idempotency-key", detail=_KEY_TEXT))
    return event_id or event_id_of(key, "", 0.0), key


def is_id(text: str) -> bool:
    """Return whether an event can have that id."""
    return _ID.match(text) is not None
