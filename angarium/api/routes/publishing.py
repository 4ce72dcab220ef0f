"""Publishing: one event, its body byte for byte as it came, acknowledged by JetStream before the answer."""

import asyncio
import re
from typing import Any

from litestar import Request, Response, post
from litestar.params import FromPath

from actors.errors import InvalidName, Unavailable
from actors.ids import event_id as event_id_of
from actors.ids import split_receiver
from angarium.api.bodies import Headers, header, read
from angarium.api.gate import Caller, caller, needs
from angarium.api.live import Live, TheLive
from angarium.api.openapi import publishing
from angarium.api.problems import (
    Fault,
    Refusal,
    answered,
    hidden,
    invalid,
    not_found,
    unavailable,
)
from angarium.operations.accept import Accepted, NewEvent, accept
from streams.reading.messages import CONTENT_TYPE_DEFAULT, TYPE_DEFAULT, is_content_type, trace, type_problem

_ID = re.compile(r"[A-Za-z0-9_:-]{1,128}\Z")
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?\Z")

Asked = Request[Any, Any, Any]


@post(
    "/v1/tenants/{tenant:str}/events/{type:str}",
    status_code=202,
    opt=needs("publish"),
    **publishing.fan_out,
)
async def fan_out(
    request: Asked, tenant: FromPath[str], type: FromPath[str], live: TheLive
) -> Response[Accepted]:
    """Publish an event to every receiver of the tenant that subscribes to its type."""
    return await _publish(request, live, tenant, "", type)


@post(
    "/v1/tenants/{tenant:str}/receivers/{name:str}/events/{type:str}",
    status_code=202,
    opt=needs("publish"),
    **publishing.direct,
)
async def direct(
    request: Asked, tenant: FromPath[str], name: FromPath[str], type: FromPath[str], live: TheLive
) -> Response[Accepted]:
    """Publish an event to one receiver."""
    return await _publish(request, live, tenant, name, type)


@post(
    "/v1/tenants/{tenant:str}/receivers/{name:str}/events",
    status_code=202,
    opt=needs("publish"),
    **publishing.direct_untyped,
)
async def direct_untyped(
    request: Asked, tenant: FromPath[str], name: FromPath[str], live: TheLive
) -> Response[Accepted]:
    """Publish an event of the type `message` to one receiver."""
    return await _publish(request, live, tenant, name, TYPE_DEFAULT)


async def _publish(request: Asked, live: Live, tenant: str, name: str, event_type: str) -> Response[Accepted]:
    """Check all that can be checked without the body, then read it, then store it."""
    rate_headers = within_rate(live, caller(request), 1)
    headers: Headers = request.scope["headers"]
    if problem := type_problem(event_type):
        raise invalid(Fault(detail=problem))
    event_id, key = _ids(headers)
    content_type = header(headers, b"content-type") or CONTENT_TYPE_DEFAULT
    if not is_content_type(content_type):
        raise invalid(Fault(header="content-type", detail="at most 256 printable ASCII characters"))
    traceparent, tracestate = trace(header(headers, b"traceparent"), header(headers, b"tracestate"))
    if name:
        await must_exist(live, tenant, name)
    with live.room.seat() as seat:
        limit = live.access.settings.max_body
        body = await read(request.receive, headers, live.room, seat, limit)
        accepted = answered(
            await accept(
                live.access,
                NewEvent(
                    tenant=tenant, name=name, type=event_type, body=body, id=event_id, key=key,
                    content_type=content_type, traceparent=traceparent, tracestate=tracestate,
                ),
            )
        )  # fmt: skip
    if not name:
        accepted.matched = await live.matched(tenant, event_type)
    return Response(accepted, status_code=202, headers=rate_headers)


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

    The key may stand in quotes, as draft-ietf-httpapi-idempotency-key-header has it.
    """
    event_id, key = header(headers, b"angarium-id"), header(headers, b"idempotency-key")
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
        if not key:
            raise invalid(Fault(header="idempotency-key", detail=_KEY_TEXT))
    if event_id and not _ID.match(event_id):
        raise invalid(Fault(header="angarium-id", detail="1 to 128 of A-Z a-z 0-9 _ - :"))
    if key and not _KEY.match(key):
        raise invalid(Fault(header="idempotency-key", detail=_KEY_TEXT))
    return event_id or key_as_id(key), key


def key_as_id(key: str) -> str:
    """The id of an event that has a key and no id: the same for the same key, within 2 minutes and after."""
    return event_id_of(key, "", 0.0) if key else ""


_KEY_TEXT = "1 to 255 printable ASCII characters"
