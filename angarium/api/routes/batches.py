"""Batches: up to a thousand events in one request, published in their order, answered one by one."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from litestar import Response, post
from litestar.params import FromPath
from litestar.types import Receive
from msgspec import Raw, Struct

from angarium.api.bodies import Headers, header, heads, read
from angarium.api.gate import Caller, caller, needs
from angarium.api.live import Live, TheLive
from angarium.api.openapi import batches
from angarium.api.openapi.batches import BatchAnswer, ItemAnswer
from angarium.api.problems import Fault, Refusal, invalid, refusal
from angarium.api.routes.publishing import ID_TEXT, Asked, is_id, must_exist, within_rate
from angarium.operations.accept import Accepted, NewEvent, accept_all
from angarium.operations.failures import OperationError, not_done
from streams.reading.messages import TYPE_DEFAULT, type_problem

ITEMS_MAX = 1000
BODY_MAX = 8 << 20
"""Of a whole batch; where one event may be larger than that, of one such event."""
_ROOM = 64 << 10
_LINES = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines"}
)


class Item(Struct, frozen=True, forbid_unknown_fields=True):
    """One event of a batch. `data` is passed on as it stands there."""

    data: Raw
    type: str = ""
    id: str = ""
    receiver: str = ""


@post("/v1/tenants/{tenant:str}/events", status_code=202, opt=needs("publish"), **batches.batch)
async def batch(request: Asked, tenant: FromPath[str], live: TheLive) -> Response[BatchAnswer]:
    """Publish up to 1,000 events. 202 where all are stored, else 207."""
    headers = heads(request.scope["headers"])
    answer, told = await publish_all(live, caller(request), tenant, headers, request.receive)
    return Response(answer, status_code=207 if answer.refused else 202, headers=told)


async def publish_all(
    live: Live, who: Caller, tenant: str, headers: Headers, receive: Receive
) -> tuple[BatchAnswer, dict[str, str]]:
    """Publish the events of a batch. Raises `Refusal` where none of them can be."""
    split = _splitter(header(headers, b"content-type"))
    max_body = live.access.settings.max_body
    with live.room.seat(tenant) as seat:
        body = await read(receive, headers, live.room, seat, max(BODY_MAX, max_body + _ROOM))
        raw = split(body)
        if len(raw) > ITEMS_MAX:
            raise invalid(Fault(pointer="", detail=f"at most {ITEMS_MAX} events, not {len(raw)}"))
        told = within_rate(live, who, len(raw))
        parsed = [_parsed(number, each, max_body) for number, each in enumerate(raw)]
        missing = await _missing(live, tenant, parsed)
        results = await _publish(live, tenant, [_there(each, missing) for each in parsed])
    refused = sum(each.status != 202 for each in results)
    return BatchAnswer(accepted=len(results) - refused, refused=refused, results=results), told


def _splitter(content_type: str) -> Any:
    """The function that takes the body apart into the texts of the events. Raises `Refusal`."""
    media = content_type.partition(";")[0].strip().lower()
    if media in _LINES:
        return _lines
    if media in ("", "application/json"):
        return _members
    raise Refusal(
        415, "unsupported", "send a JSON array as application/json, or lines as application/x-ndjson"
    )


def _members(body: bytes) -> list[Raw]:
    try:
        return msgspec.json.decode(body, type=list[Raw])
    except msgspec.ValidationError:
        raise invalid(Fault(pointer="", detail="must be an array of events")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "not-http", f"the body is not valid JSON ({error})") from None


def _lines(body: bytes) -> list[Raw]:
    return [Raw(line) for line in body.split(b"\n") if line.strip()]


def _parsed(number: int, raw: Raw, max_body: int) -> Item | Refusal:
    """The event in a text, or what is wrong with it."""
    try:
        item = msgspec.json.decode(raw, type=Item)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        member = f"/{place[:-1]}" if place else ""
        return invalid(Fault(pointer=f"/{number}{member}", detail=text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return invalid(Fault(pointer=f"/{number}", detail=f"not valid JSON ({error})"))
    if not item.type and not item.receiver:
        return invalid(Fault(pointer=f"/{number}/type", detail="missing"))
    if item.type and (problem := type_problem(item.type)):
        return invalid(Fault(pointer=f"/{number}/type", detail=problem))
    if item.id and not is_id(item.id):
        return invalid(Fault(pointer=f"/{number}/id", detail=ID_TEXT))
    if len(memoryview(item.data)) > max_body:
        return Refusal(413, "too-large", f"an event may have {max_body} bytes; send less, or a link to it")
    return item


async def _missing(live: Live, tenant: str, parsed: Iterable[Item | Refusal]) -> dict[str, Refusal]:
    """The receivers that are named and not there, each asked for once."""
    missing: dict[str, Refusal] = {}
    named = (each.receiver for each in parsed if isinstance(each, Item) and each.receiver)
    for name in dict.fromkeys(named):
        try:
            await must_exist(live, tenant, name)
        except Refusal as refused:
            missing[name] = refused
    return missing


def _there(item: Item | Refusal, missing: dict[str, Refusal]) -> Item | Refusal:
    return missing.get(item.receiver, item) if isinstance(item, Item) else item


async def _publish(live: Live, tenant: str, items: Sequence[Item | Refusal]) -> list[ItemAnswer]:
    """Publish those that can be, in their order; returns the answer to each."""
    events = [_event(tenant, each) for each in items if isinstance(each, Item)]
    stored = iter(await accept_all(live.access, events)) if events else iter(())
    types = {each.type for each in items if isinstance(each, Item) and not each.receiver}
    matched = {each: await live.matched(tenant, each) for each in types}
    return [
        _refused(each) if isinstance(each, Refusal) else _answer(each, next(stored), matched)
        for each in items
    ]


def _event(tenant: str, item: Item) -> NewEvent:
    event_type = item.type or TYPE_DEFAULT
    return NewEvent(tenant=tenant, name=item.receiver, type=event_type, body=bytes(item.data), id=item.id)


def _answer(item: Item, stored: Accepted | OperationError, matched: dict[str, int | None]) -> ItemAnswer:
    if isinstance(stored, OperationError):
        return _refused(refusal(not_done(stored)))
    return ItemAnswer(
        status=202, id=stored.id, stream=stored.stream, seq=stored.seq, duplicate=stored.duplicate,
        matched=None if item.receiver else matched[item.type],
    )  # fmt: skip


def _refused(refused: Refusal) -> ItemAnswer:
    said = refused.problem
    return ItemAnswer(
        status=said.status, type=said.type, title=said.title, detail=said.detail, errors=said.errors
    )
