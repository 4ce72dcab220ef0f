"""Batches: up to a thousand events in one request, published in their order, answered one by one."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from litestar import Response, post
from litestar.params import FromPath
from litestar.types import Receive
from msgspec import Raw

from actors import allowed_values
from actors.configuration.problems import REGION_TEXT, is_region
from angarium.api.admission.gate import Caller, caller, needs
from angarium.api.api_state import ApiState, InjectedApi
from angarium.api.openapi.publishing import ITEMS_MAX, PUBLISH_BATCH, BatchAnswer, BatchItem, ItemAnswer
from angarium.api.problems import Fault, ProblemRaised, invalid, not_json, problem_of
from angarium.api.requests.bodies import check_json, json_pointer, read_body
from angarium.api.requests.event_ids import ID_TEXT, is_id
from angarium.api.requests.headers import Headers, header, headers_by_name
from angarium.api.routes.publishing import Asked, must_exist, within_rate
from angarium.operations.events.accept import AcceptedEvent, accept_all, check_unsent
from angarium.operations.events.message import NewEvent, delivery_time
from angarium.operations.failures import OperationError, not_done
from streams.reading.messages import TYPE_DEFAULT, type_problem

BODY_MAX = 8 << 20
"""Bytes of a whole batch; if a single event may be larger, the bytes of one such event."""
_MEMBERS_MAX = 64 << 10
"""Bytes of an event besides its data."""
LINES_MAX = 2 * ITEMS_MAX
"""Ends of lines in a batch of lines, some of which may be empty."""
PIECE_BYTES = 512 << 10
"""Bytes of events that are decoded at once: some milliseconds."""
_array = msgspec.json.Decoder(
    msgspec.defstruct(
        "Places", [(f"event_{number}", Raw, None) for number in range(ITEMS_MAX)],
        array_like=True, forbid_unknown_fields=True, frozen=True, gc=False,
    )
)  # fmt: skip
"""An array with a place for each event: one that is longer is refused at the first event too many.

A list would be decoded to its end before its length is known: of 8 MiB of numbers, that takes a third of a
second.
"""
_TOO_LONG = "Expected `array` of at most length"
_LINES = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines"}
)


@post("/v1/tenants/{tenant:str}/events", status_code=202, opt=needs("publish"), **PUBLISH_BATCH)
async def publish_batch(request: Asked, tenant: FromPath[str], api: InjectedApi) -> Response[BatchAnswer]:
    """Publish up to 1,000 events; the answer is 202 if all are stored, else 207."""
    headers = headers_by_name(request.scope["headers"])
    answer, rate_headers = await publish_all(api, caller(request), tenant, headers, request.receive)
    return Response(answer, status_code=207 if answer.refused else 202, headers=rate_headers)


async def publish_all(
    api: ApiState, who: Caller, tenant: str, headers: Headers, receive: Receive
) -> tuple[BatchAnswer, dict[str, str]]:
    """Publish the events of a batch. Raises `ProblemRaised` if none of them can be."""
    split = _splitter(header(headers, b"content-type"))
    max_body = api.access.settings.max_body
    check_unsent(api.access)
    with api.limits.admit(tenant) as admitted:
        body = await read_body(receive, headers, api.limits, admitted, max(BODY_MAX, max_body + _MEMBERS_MAX))
        raw = split(body)
        rate_headers = within_rate(api, who, len(raw))
        parsed = await _all_parsed(tenant, raw, max_body)
        missing = await _missing(api, tenant, parsed)
        results = await _publish(api, tenant, [_unless_missing(each, missing) for each in parsed])
    refused = sum(each.status != 202 for each in results)
    return BatchAnswer(accepted=len(results) - refused, refused=refused, results=results), rate_headers


def _splitter(content_type: str) -> Any:
    """The function that takes the body apart into the texts of the events. Raises `ProblemRaised`."""
    media = content_type.partition(";")[0].strip().lower()
    if media in _LINES:
        return _lines
    if media in ("", "application/json"):
        return _members
    raise ProblemRaised(
        415,
        "unsupported",
        "send a JSON array as application/json, or one event a line as application/x-ndjson",
    )


def _members(body: bytes) -> Sequence[Raw]:
    try:
        places = msgspec.structs.astuple(_array.decode(body))
    except msgspec.ValidationError as error:
        if str(error).startswith(_TOO_LONG):
            raise _too_many() from None
        check_json(body)
        raise invalid(Fault(pointer="", detail="must be an array of events")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(error) from None
    return places if places[-1] is not None else places[: places.index(None)]


def _lines(body: bytes) -> Sequence[Raw]:
    if body.count(b"\n") > LINES_MAX:
        raise _too_many()
    lines = [Raw(line) for line in body.split(b"\n") if line.strip()]
    if len(lines) > ITEMS_MAX:
        raise _too_many()
    return lines


def _too_many() -> ProblemRaised:
    return invalid(Fault(pointer="", detail=f"a request may have at most {ITEMS_MAX} events"))


async def _all_parsed(tenant: str, raw: Sequence[Raw], max_body: int) -> list[NewEvent | ProblemRaised]:
    """The events in the texts, or their errors; other requests get their turn between two pieces."""
    parsed: list[NewEvent | ProblemRaised] = []
    size = 0
    for number, each in enumerate(raw):
        size += len(memoryview(each))
        if size > PIECE_BYTES:
            size = 0
            await asyncio.sleep(0)
        parsed.append(_parsed(tenant, number, each, max_body))
    return parsed


def _parsed(tenant: str, number: int, raw: Raw, max_body: int) -> NewEvent | ProblemRaised:
    """The event in a text, or the error."""
    try:
        item = msgspec.json.decode(raw, type=BatchItem)
    except msgspec.ValidationError as error:
        path, detail = allowed_values.conversion_problem(error, BatchItem)
        return invalid(Fault(pointer=f"/{number}{json_pointer(path)}", detail=detail))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return invalid(Fault(pointer=f"/{number}", detail=f"not valid JSON ({error})"))
    if not item.type and not item.receiver:
        return invalid(Fault(pointer=f"/{number}/type", detail="missing"))
    if item.type and (problem := type_problem(item.type)):
        return invalid(Fault(pointer=f"/{number}/type", detail=problem))
    if item.id and not is_id(item.id):
        return invalid(Fault(pointer=f"/{number}/id", detail=ID_TEXT))
    if item.region and not is_region(item.region):
        return invalid(Fault(pointer=f"/{number}/region", detail=REGION_TEXT))
    deliver_at = delivery_time(item.deliver_at, time.time()) if item.deliver_at else 0.0
    if isinstance(deliver_at, str):
        return invalid(Fault(pointer=f"/{number}/deliver_at", detail=deliver_at))
    if len(memoryview(item.data)) > max_body:
        detail = f"an event may have at most {max_body} bytes; send less, or a link to it"
        return ProblemRaised(413, "too-large", detail)
    return NewEvent(
        tenant=tenant, name=item.receiver, type=item.type or TYPE_DEFAULT, body=bytes(item.data), id=item.id,
        region=item.region, deliver_at=deliver_at,
    )  # fmt: skip


async def _missing(
    api: ApiState, tenant: str, parsed: Iterable[NewEvent | ProblemRaised]
) -> dict[str, ProblemRaised]:
    """The named receivers that do not exist, each looked up once."""
    missing: dict[str, ProblemRaised] = {}
    named = (each.name for each in parsed if isinstance(each, NewEvent) and each.name)
    for name in dict.fromkeys(named):
        try:
            await must_exist(api, tenant, name)
        except ProblemRaised as refused:
            missing[name] = refused
    return missing


def _unless_missing(
    event: NewEvent | ProblemRaised, missing: dict[str, ProblemRaised]
) -> NewEvent | ProblemRaised:
    return missing.get(event.name, event) if isinstance(event, NewEvent) else event


async def _publish(
    api: ApiState, tenant: str, parsed: Sequence[NewEvent | ProblemRaised]
) -> list[ItemAnswer]:
    """Publish the valid events in their order; returns the answer to each event, and to each error."""
    events = [each for each in parsed if isinstance(each, NewEvent)]
    stored = iter(await accept_all(api.access, events)) if events else iter(())
    types = {each.type for each in events if not each.name}
    matched = {each: await api.matched(tenant, each) for each in types}
    return [
        _refused(each) if isinstance(each, ProblemRaised) else _answer(each, next(stored), matched)
        for each in parsed
    ]


def _answer(
    event: NewEvent, stored: AcceptedEvent | OperationError, matched: dict[str, int | None]
) -> ItemAnswer:
    if isinstance(stored, OperationError):
        return _refused(problem_of(not_done(stored)))
    return ItemAnswer(
        status=202, id=stored.id, stream=stored.stream, seq=stored.seq, duplicate=stored.duplicate,
        matched=None if event.name else matched[event.type],
    )  # fmt: skip


def _refused(refused: ProblemRaised) -> ItemAnswer:
    problem = refused.problem
    return ItemAnswer(
        status=problem.status,
        type=problem.type,
        title=problem.title,
        detail=problem.detail,
        errors=problem.errors,
    )
